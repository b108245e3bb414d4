"""What a model attends to in a sentence, as pictures for TensorBoard."""

from __future__ import annotations

import numpy as np

PIXELS = 8
"""Width and height of a weight."""


def attention_images(model, batch) -> dict[str, np.ndarray]:
    """Pictures of every layer's attention in the first sentence of a batch.

    Args:
        model: a `Transformer`.
        batch: of {"inputs": [B, S], "targets": [B, T]}, or of packed rows.

    Returns:
        By name ("encoder/layer_0" and so on, "decoder", "encdec"), [height, width, 3] uint8: the
        heads side by side, queries from top to bottom, keys from left to right, white where the
        weight is 0 and dark where it is 1.
    """
    first = {name: np.asarray(feature)[:1] for name, feature in batch.items()}
    first["inputs"], first["targets"] = (
        ids[:, : np.flatnonzero(ids[0])[-1] + 1] for ids in (first["inputs"], first["targets"])
    )
    length = {side: first[side].shape[1] for side in ("inputs", "targets")}
    for name in first:  # what goes with the ids of packed rows
        first[name] = first[name][:, : length[name.split("_")[0]]]
    _, weights = model(first, training=False, return_attention_weights=True)
    return {
        f"{kind}/layer_{number}": _picture(np.asarray(layer)[0])
        for kind, layers in weights.items()
        for number, layer in enumerate(layers)
    }


def _picture(heads: np.ndarray) -> np.ndarray:
    """Weights [H, T, S] as [T * PIXELS, H * (S + 1) * PIXELS - PIXELS, 3], heads a column apart."""
    shades = 255 - np.round(255 * heads).astype(np.uint8)
    shades = shades.repeat(PIXELS, 1).repeat(PIXELS, 2)
    gap = np.full((shades.shape[1], PIXELS), 200, np.uint8)
    columns = [part for head in shades for part in (gap, head)][1:]
    return np.concatenate(columns, 1)[:, :, None].repeat(3, 2)
