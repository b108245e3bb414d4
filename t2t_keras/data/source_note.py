"""A note beside generated data of what it was made from, so that nothing else is taken for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from t2t_keras.data.pair_source import PairSource
from t2t_keras.data.problem import DatasetSplit
from t2t_keras.data.text_problem import PathLike, Text2TextProblem
from t2t_keras.errors import UserError
from t2t_keras.whole_file import whole_file

_VOCABULARY = "vocabulary"


def check_and_note(problem: Text2TextProblem, source: PairSource, data_dir: PathLike) -> None:
    """Makes sure that what lies in `data_dir` was made from `source`, and notes what will be.

    A vocabulary that the note does not mention was put there by its user and may stay.

    Args:
        problem: whose shards and vocabulary are looked for.
        source: what new ones are to be made from.
        data_dir: an existing directory.

    Raises:
        UserError: the vocabulary or shards of a split were made from something else.
    """
    name = problem.dataset_filename()
    path = Path(data_dir) / f"source.{name}.json"
    noted = _read(path)
    wanted = {split: source.description(split) for split in source.splits}
    train = wanted[DatasetSplit.TRAIN]
    size = problem.approx_vocab_size
    wanted[_VOCABULARY] = {
        "from": f"{train['from']} with --vocab_size={size}",
        "identity": [*train["identity"], size],
    }
    vocabulary = Path(data_dir) / str(problem.vocab_filename)
    if vocabulary.exists() and _VOCABULARY not in noted:
        del wanted[_VOCABULARY]
    for part, description in wanted.items():
        # Shards hold ids of the vocabulary, and so tell of it when its file is gone.
        pattern = f"{name}-*-of-*" if part == _VOCABULARY else f"{name}-{part}-*-of-*"
        there = next(Path(data_dir).glob(pattern), None) is not None
        if there or (part == _VOCABULARY and vocabulary.exists()):
            _require_same(part, noted.get(part), description, f"{data_dir} of {name}")
    if noted != (new := {**noted, **wanted}):
        _write(path, new)


def _require_same(part: str, noted: Mapping | None, wanted: Mapping, where: str) -> None:
    if noted and noted["identity"] == wanted["identity"]:
        return
    made_from = noted["from"] if noted else "something that is not known"
    if made_from == wanted["from"]:
        made_from += " when it held something else"
    raise UserError(
        f"the {part} in {where} was made from {made_from}, not from {wanted['from']}: "
        "delete vocabulary and shards there, or give another --data_dir."
    )


def _read(path: Path) -> dict[str, dict]:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error


def _write(path: Path, note: Mapping) -> None:
    try:
        with whole_file(path) as partial:
            partial.write_text(json.dumps(note, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
