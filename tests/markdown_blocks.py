"""The code blocks of Markdown pages, and what the comment before a block says of it.

A block is `sh`, `python` or, for what is printed and for files, `text`. A comment right before it,
in a line of its own, says why it is not run, or which file it shows:

    <!-- not run: needs the network -->
    <!-- file: examples/fit.py -->
"""

import json
import re
import shlex
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LANGUAGES = ("sh", "python", "text")

_FENCED = re.compile(
    r"(?:^[ ]*<!-- (?P<kind>not run|file): (?P<about>.+?) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^[ ]*```[ ]*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One code block."""

    place: str  # page and line, such as README.md:30
    language: str  # "" where the page names none
    code: str
    not_run: str  # the reason; "" if it is run
    file: str  # the file of which it shows a part; "" if none


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page of the repository, or the cells of a notebook, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    is_notebook = page.endswith(".ipynb")
    if is_notebook:
        text = "\n".join(map(_as_markdown, json.loads(text)["cells"]))
    found: list[Block] = []
    for match in _FENCED.finditer(text):
        kind, about = match["kind"], match["about"] or ""
        if is_notebook and found and found[-1].language == "python" == match["language"]:
            found[-1] = found[-1]._replace(code=found[-1].code + match["code"])  # one process
            continue
        found.append(
            Block(
                place=f"{page}:{text.count(chr(10), 0, match.start('code')) + 1}",
                language=match["language"],
                code=textwrap.dedent(match["code"]),
                not_run=about if kind == "not run" else "",
                file=about if kind == "file" else "",
            )
        )
    return found


def _as_markdown(cell: dict) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    language = "sh" if source.startswith("%%sh\n") else "python"
    return f"```{language}\n{source.removeprefix('%%sh').strip()}\n```"


def indented_lines(page: str) -> list[str]:
    """The lines of a page that Markdown takes for code because they are indented."""
    text = _FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return re.findall(r"(?:^|\n)\n(?:    (?! ).*\n)+", text)


def commands(code: str) -> list[list[str]]:
    """The simple commands of a shell block, without redirections, each a list of words.

    A line `name="value"` is no command: its value stands for `$name` in the lines below it.
    """
    found: list[list[str]] = []
    values: dict[str, str] = {}
    for line in re.sub(r"\\\n", " ", code).splitlines():
        if variable := re.fullmatch(r"(\w+)=(\S+|\"[^\"]*\")", line):
            values[variable[1]] = variable[2].strip('"')
            continue
        line = re.sub(r"\$(\w+)", lambda use: values.get(use[1], use[0]), line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        tokens = iter(lexer)
        for token in tokens:
            if token in ("<", ">", ">>", "2>"):
                next(tokens)
            elif token in ("|", "||", "&&", ";", "&"):
                found.append(words)
                words = []
            else:
                words.append(token)
        found.append(words)
    return [words for words in found if words]
