"""Whether text encoders are those that a model was trained with, as far as sizes tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.text.simple_encoders import TokenTextEncoder

_TABLES = {"inputs": "source_vocab_size", "targets": "target_vocab_size"}


def require_vocabulary(model, encoders: Mapping[str, Any]) -> None:
    """Refuses encoders of more tokens than the model has rows in its tables.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders.

    Raises:
        UserError: naming the side and both sizes.
    """
    for side, table in _TABLES.items():
        tokens, rows = encoders[side].vocab_size, getattr(model, table)
        if tokens > rows:
            raise _other_vocabulary(side, tokens, rows)


def require_vocabulary_of_run(
    model, sizes: Mapping[str, int], run: Mapping[str, Any], data_dir: str
) -> str:
    """Refuses vocabularies of other sizes than a model was trained with.

    Beside T2T's checkpoints nothing tells these sizes but tables. They may have more rows than there
    are tokens: those that `vocab_divisor` adds, or more, which deserves a word.

    Args:
        model: a `Transformer`.
        sizes: what the problem makes of its vocabularies: see `Problem.vocab_sizes`.
        run: `run.json` beside the model.
        data_dir: where the vocabularies are.

    Returns:
        A warning, or "".

    Raises:
        UserError: naming the side and both sizes.
    """
    for side, table in _TABLES.items():
        spare = getattr(model, table) - sizes[side]
        if spare < 0 or (spare and table in run):
            raise _other_vocabulary(side, sizes[side], getattr(model, table), data_dir)
        if spare >= model.hp.vocab_divisor:
            return (
                f"the vocabulary of the {side} in {data_dir} has {sizes[side]} tokens and the model's "
                f"table {sizes[side] + spare} rows: make sure that the model was trained on it."
            )
    return ""


def spelled(encoder, ids: list[int]) -> list[int]:
    """The ids that have a text: those of a table's further rows have `ID_7` in a list of words, as in T2T."""
    if isinstance(encoder, TokenTextEncoder):
        return ids
    return [i for i in ids if i < encoder.vocab_size]


def _other_vocabulary(side: str, tokens: int, rows: int, data_dir: str = "") -> UserError:
    where = f" in {data_dir}" if data_dir else ""
    return UserError(
        f"the vocabulary of the {side}{where} has {tokens} tokens and the model {rows}: "
        "give the data the model was trained on."
    )
