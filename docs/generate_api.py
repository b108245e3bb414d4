"""Writes docs/api.md from the docstrings of the public names: `python docs/generate_api.py`.

Public is what `__all__` of a subpackage lists, and of the modules in `MODULES` the names given there.
The source is read, not imported.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "t2t_keras"
MODULES = {
    "transformer": ["Transformer"],
    "losses": ["padded_cross_entropy", "token_accuracy"],
    "schedules": ["learning_rate_schedule"],
    "settings": ["HParams"],
    "errors": ["UserError"],
    "registry": [
        "hparams",
        "problem",
        "register_hparams",
        "register_problem",
        "list_hparams",
        "list_problems",
        "import_user_directory",
    ],
}
HEAD = """# API

What may be imported and is kept (see [Versions](versioning.md)): made by `python docs/generate_api.py` from the docstrings.
The submodules of `t2t_keras` load when they are first used. B is the batch, S a source's length, T a target's, D
`hidden_size`, H heads, V the vocabulary, K hypotheses, L an output's length.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in public_modules():
        path = source(name)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        first = (ast.get_docstring(tree) or "").split("\n\n")[0]
        parts.append(f"## t2t_keras.{name}\n\n{paragraph(first)}\n")
        for public, node in public_nodes(name, path, tree):
            parts.append(entry(public, node))
    return "\n".join(parts)


def public_modules() -> list[str]:
    """The submodules of the package that have public names, sorted."""
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted([*MODULES, *(name for name in packages if name != "cli")])


def public_names() -> list[str]:
    """Every public name, such as `t2t_keras.layers.FeedForward`."""
    found = []
    for name in public_modules():
        tree = ast.parse(source(name).read_text(encoding="utf-8"))
        found += [f"t2t_keras.{name}.{public}" for public in exported(name, tree)]
    return found


def source(name: str) -> Path:
    """The file of a submodule."""
    package = PACKAGE / name / "__init__.py"
    return package if package.exists() else PACKAGE / f"{name}.py"


def exported(name: str, tree: ast.Module) -> list[str]:
    """The public names of a submodule."""
    if name in MODULES:
        return MODULES[name]
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def public_nodes(name: str, path: Path, tree: ast.Module):
    """Yields each public name and the class, function or assignment that it stands for."""
    if name in MODULES:
        places = dict.fromkeys(MODULES[name], path)
    else:
        places = {
            alias.name: PACKAGE / Path(*node.module.split(".")[1:]).with_suffix(".py")
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
    for public in exported(name, tree):
        body = ast.parse(places[public].read_text(encoding="utf-8")).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if defined(node) == public:
                yield public, (node, after)


def defined(node: ast.stmt) -> str:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def entry(name: str, found: tuple[ast.stmt, ast.stmt | None]) -> str:
    """The section of one name."""
    node, after = found
    if isinstance(node, ast.FunctionDef):
        return f"### {name}\n\n`{name}{signature(node)}`\n\n{text(docstring(node))}"
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        of = f", a `{'` and `'.join(bases)}`" if bases else ""
        lines = [f"### {name}", "", f"`{name}{constructor(node)}`{of}", ""]
        return "\n".join(lines) + "\n" + text(docstring(node)) + members(node)
    about = after.value.value if is_text(after) else ""  # type: ignore[union-attr]
    return f"### {name}\n\n{text(inspect.cleandoc(about))}"


def is_text(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def docstring(node) -> str:
    return ast.get_docstring(node) or ""


def signature(node: ast.FunctionDef, skip: int = 0) -> str:
    """`(x, *, y: int = 0) -> str`, without the first `skip` parameters."""
    arguments = node.args
    arguments.args = arguments.args[skip:]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return f"({ast.unparse(arguments)}){returns}"


def constructor(node: ast.ClassDef) -> str:
    """What makes an object: the parameters of `__init__`, or the fields of a tuple or dataclass."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return signature(item, skip=1)
    is_record = any("dataclass" in ast.unparse(d) for d in node.decorator_list) or any(
        ast.unparse(base) in ("NamedTuple", "Settings") for base in node.bases
    )
    if not is_record:
        return ""
    fields = [ast.unparse(item) for item in node.body if isinstance(item, ast.AnnAssign)]
    return f"({', '.join(fields)})"


def members(node: ast.ClassDef) -> str:
    """A list of the methods and attributes that have a docstring."""
    lines = []
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        name = defined(item)
        if not name or name.startswith("_"):
            continue
        if isinstance(item, ast.FunctionDef):
            decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
            about = docstring(item)
            shown = name if "property" in decorators else name + signature(item, skip=1)
        else:
            about = inspect.cleandoc(after.value.value) if is_text(after) else ""  # type: ignore
            shown = name
        if about:
            lines.append(f"- `{shown}`: {paragraph(about.split(chr(10) * 2)[0])}\n")
    return "\n**Members**\n\n" + "".join(lines) if lines else ""


def paragraph(words: str) -> str:
    return " ".join(words.split())


_SECTION = re.compile(r"^(Args|Call arguments|Attributes|Returns|Raises|Yields):$")


def text(doc: str) -> str:
    """A docstring as Markdown: sections are bold, and the entries of a section a list."""
    lines: list[str] = []
    section = ""
    for line in doc.splitlines():
        if match := _SECTION.match(line):
            section = match[1]
            lines += [f"**{section}**", ""]
        elif section and line and not line.startswith(" "):
            section = ""
            lines.append(line)
        elif section and re.match(r"    [\w\", ]+: ", line):
            name, _, about = line.strip().partition(": ")
            lines.append(f"- `{name}`: {about}")
        elif section:
            lines.append(re.sub("^    ", "", line))
        else:
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(page(), encoding="utf-8")
