"""The rules of the house, and that the pages about it tell the truth."""

import ast
import re
import sys
from pathlib import Path

import pytest
import toy

from t2t_keras.settings import SETTINGS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "t2t_keras"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ALONE = ("transformer", "network_settings", "losses", "optimizers", "schedules")
KERAS_ALONE = [PACKAGE / f"{name}.py" for name in ALONE] + sorted((PACKAGE / "layers").glob("*.py"))


def imports(path):
    """Names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def tables(text):
    """The cells of all rows below the heads of Markdown tables."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if "`" in row[0]]


# Imports


@pytest.mark.parametrize("path", KERAS_ALONE, ids=lambda path: path.stem)
def test_network_imports_keras_alone(path):
    allowed = {"keras", *sys.stdlib_module_names}
    for name in imports(path):
        own = name.startswith("t2t_keras")
        assert own or name.split(".")[0] in allowed, f"{path.name} imports {name}"
        assert not own or not re.match(r"t2t_keras\.(data|training|checkpoints|decoding|cli)", name)


HEAVY = ["tensorflow", "keras", "tensorflow_text", "tensorflow_datasets", "sacrebleu", "numpy"]
PACK = "from t2t_keras.data import records; list(records.pack([], 4))"


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("from t2t_keras import registry", [*HEAVY, "t2t_keras.hparams"]),
        ("from t2t_keras import registry; registry.hparams('transformer_base')", HEAVY[:4]),
        ("import t2t_keras.data.tfds, t2t_keras.problems", HEAVY[:4]),
        (PACK, HEAVY[:4]),
    ],
)
def test_importing_loads_nothing_heavy(code, absent):
    done = toy.python("-c", f"import sys; {code}; print([n for n in {absent} if n in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


# Pages


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_files_that_exist(path):
    text = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    missing = [link for link in links if not (path.parent / link).exists()]
    tops = "t2t_keras|problems|hparams|tests|docs|examples|benchmarks"
    named = re.findall(rf"`((?:{tops})/[^`*{{]*)`", text)
    missing += [name for name in named if not (ROOT / name).exists()]
    assert not missing


def test_architecture_names_every_folder_and_every_file_beside_them():
    rows = tables(page("architecture.md"))
    heads = {name for row in rows for name in re.findall("`(.*?)`", row[0])}
    folders = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("*.py")} - {"./"}
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert {f"t2t_keras/{name}" for name in folders | files} <= heads


def test_architecture_names_the_modules_that_there_are():
    for head, text, *_ in tables(page("architecture.md")):
        if head.endswith("/`"):
            for name in re.findall(r"`(\w+\.py)`", text):
                assert (ROOT / head.strip("`") / name).exists()


READERS = {
    "network": "transformer network_settings checkpoints/names checkpoints/t2t",
    "data": "data/on_the_fly data/reading",
    "training": "losses optimizers schedules training/train_step training/engine",
}
ONE_MEANING = {"ffn_layer", "norm_type"}
"""Settings that need not be read, since all of their values mean the same."""


@pytest.mark.parametrize("reader", READERS)
def test_the_table_of_settings_says_who_reads_them(reader):
    words = set()
    for file in READERS[reader].split():
        for node in ast.walk(ast.parse((PACKAGE / f"{file}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.Constant):
                words.add(node.value)
    acting = {name for name, setting in SETTINGS.items() if not setting.inert}
    listed = {name for name in acting if reader in SETTINGS[name].readers}
    assert listed - ONE_MEANING == acting & words
