"""Whether text encoders are those that a model was trained with, as far as sizes tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t2t_keras.errors import UserError


def require_vocabulary(model, encoders: Mapping[str, Any], data_dir: str | None = None) -> None:
    """Refuses encoders of another vocabulary size than the model's.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders.
        data_dir: where they come from, for the message.

    Raises:
        UserError: naming the side and both sizes.
    """
    where = f" in {data_dir}" if data_dir else ""
    sizes = (("inputs", model.source_vocab_size), ("targets", model.target_vocab_size))
    for side, size in sizes:
        if encoders[side].vocab_size != size:
            raise UserError(
                f"the vocabulary of the {side}{where} has {encoders[side].vocab_size} tokens and "
                f"the model {size}: give the data the model was trained on."
            )
