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
    """The fenced blocks of a page of the repository, in order; the cells of a notebook are one block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        code = "\n".join("".join(cell["source"]) for cell in cells)
        return [Block(page, "python", code, "", "")]
    found = []
    for match in _FENCED.finditer(text):
        kind, about = match["kind"], match["about"] or ""
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
