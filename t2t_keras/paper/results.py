"""Table of the paper's figures beside those of experiments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.paper.experiment import RECORD_FILE, RESULT_FILE
from t2t_keras.paper.rows import ROWS, Row

_OF_RECORD = ("row", "problem", "hparams", "train_steps")
_HEAD = ("row", "figure", "paper", "ours", "difference", "how")


def table(directories: Iterable[str]) -> list[str]:
    """Returns a Markdown table of the experiments in and below some directories."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD))]
    for directory in directories:
        found = sorted(_experiments(Path(directory).expanduser()), key=_by_row)
        if not found:
            raise UserError(
                f"{directory} holds no experiment: name the --output_dir of t2t-keras-paper run, "
                "or the directory above several."
            )
        for path in found:
            lines += map(_line, _rows(path))
    return lines


def _experiments(directory: Path) -> Iterator[Path]:
    """Yields the directories of experiments down to two levels below."""
    for pattern in (RECORD_FILE, f"*/{RECORD_FILE}", f"*/*/{RECORD_FILE}"):
        yield from (path.parent for path in directory.glob(pattern))


def _by_row(directory: Path) -> tuple[int, str]:
    name = _read(directory / RECORD_FILE, _OF_RECORD)["row"]
    return [*ROWS, name].index(name), str(directory)


def _rows(directory: Path) -> Iterator[list[str]]:
    """Yields a row for each figure of the paper or of ours; ours are missing until the run is done."""
    record = _read(directory / RECORD_FILE, _OF_RECORD)
    row = ROWS.get(record["row"])
    paper = row.paper if row else {}
    if (directory / RESULT_FILE).exists():
        result = _read(directory / RESULT_FILE, ("split", "figures"))
        figures, how = result["figures"], _how(record, row, result["split"])
    else:
        figures, how = {}, _how(record, row, f"step {_newest_step(directory):,} so far")
    for name in paper | figures:
        ours, theirs = figures.get(name), paper.get(name)
        yield [
            record["row"],
            name,
            "" if theirs is None else f"{theirs:g}",
            "" if ours is None else f"{ours:.2f}",
            "" if ours is None or theirs is None else f"{ours - theirs:+.2f}",
            how,
        ]


def _how(record: dict[str, Any], row: Row | None, more: str) -> str:
    """Returns data, number of updates and overrides in words."""
    steps = f"{record['train_steps']:,}"
    if row and record["train_steps"] != row.updates:
        steps += f" of {row.updates:,}"
    parts = [record["problem"], more, f"{steps} updates", record["hparams"]]
    return ", ".join(part for part in parts if part)


def _newest_step(directory: Path) -> int:
    names = (path.stem for path in (directory / "run").glob("model.ckpt-*.index"))
    steps = (name.removeprefix("model.ckpt-") for name in names)
    return max((int(step) for step in steps if step.isdigit()), default=0)


def _read(path: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
        return {name: content[name] for name in wanted}
    except KeyError as error:
        raise UserError(f"{path} cannot be read: it has no {error}.") from error
    except (OSError, ValueError, TypeError) as error:  # TypeError: JSON, but no object
        raise UserError(f"{path} cannot be read: {error}.") from error


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
