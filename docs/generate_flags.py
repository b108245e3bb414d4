"""Writes docs/flags.md from the flags that the commands define: `python docs/generate_flags.py`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from absl import flags

PAGE = Path(__file__).with_name("flags.md")
COMMANDS = sorted(
    path.stem
    for path in PAGE.parents[1].glob("t2t_keras/cli/*.py")
    if "run = app.command(" in path.read_text("utf-8")
)
HEAD = """# Flags

Every flag of every [command](command-line.md), with its help. `train` is `t2t-keras-train`, and so on.

| flag | of | |
|---|---|---|
"""


def page() -> str:
    """Returns the whole page, a row for each flag."""
    found: dict[str, dict[str, list[str]]] = {}
    for command in COMMANDS:
        for flag in flags_of(command):
            found.setdefault(flag.name, {}).setdefault(meaning(flag), []).append(command)
    return HEAD + "".join(f"| `--{name}` | {row(found[name])} |\n" for name in sorted(found))


def flags_of(command: str) -> Iterator[flags.Flag]:
    """Yields the flags that a command defines."""
    flags.FLAGS.remove_flag_values(list(flags.FLAGS))
    importlib.import_module(f"t2t_keras.cli.{command}").define_flags()
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module.startswith("t2t_keras."):
            yield from defined


def row(meanings: dict[str, list[str]]) -> str:
    """Returns the commands that have a flag, and what it means; in each, if they differ."""
    texts: Iterable[str] = meanings
    if len(meanings) > 1:
        texts = (f"{', '.join(of)}: {text}" for text, of in meanings.items())
    return f"{', '.join(sorted(set().union(*meanings.values())))} | {'<br>'.join(texts)}"


def meaning(flag: flags.Flag) -> str:
    """Returns the help on a flag in Markdown, with its choices and default."""
    text = " ".join((flag.help or "").split())
    if choices := re.match(r"<([\w|]+)>: ", text):
        text = f"{text[choices.end() :]} One of {choices[1].replace('|', ', ')}."
    text = text.replace("; repeat this option to specify a list of values", "; may be repeated.")
    text = re.sub(r"--\w+(=\w+)?", r"`\g<0>`", text.replace("<", "&lt;"))
    default = (flag.default_as_str or "").strip("'")
    return text if default in ("", "false") else f"{text} (`{default}`)"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
