"""How text becomes the tokens of a CTranslate2 model, kept beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder
from t2t_keras.text.vocabulary_file import RESERVED_TOKENS

ENCODERS_FILE = "encoders.json"
"""In the directory of the model: kind and file of both encoders, and how many positions there are."""

PAD, EOS = RESERVED_TOKENS

_KINDS = {"subwords": SubwordTextEncoder, "tokens": TokenTextEncoder, "bytes": ByteTextEncoder}


def import_ctranslate2():
    """Returns the package `ctranslate2`, or raises UserError where it is absent."""
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(
            f"CTranslate2 is missing ({error}): pip install 't2t-keras[ctranslate2]'."
        ) from error
    return ctranslate2


def tokens(encoder, size: int) -> list[str]:
    """One string for each of `size` ids, all different: CTranslate2 knows ids by these alone.

    They are the subtokens or words where these can be told apart, and `<id 7>` elsewhere.
    """
    taken = {PAD: PAD_ID, EOS: EOS_ID}
    for i in range(len(taken), size):
        name = ""
        if i < encoder.vocab_size:
            subtokens = isinstance(encoder, SubwordTextEncoder)
            name = encoder.subtoken(i) if subtokens else encoder.decode([i])
        if not name or name in taken or "\ufffd" in name:
            name = f"<id {i}>"
        while name in taken:
            name += ">"
        taken[name] = i
    return list(taken)


def require_storable(encoders: Mapping[str, Any]) -> None:
    """Raises UserError if an encoder cannot be stored."""
    for side, encoder in encoders.items():
        if _kind(encoder) is None:
            names = ", ".join(kind.__name__ for kind in _KINDS.values())
            raise UserError(
                f"the encoder of the {side} is a {type(encoder).__name__}, which cannot be stored "
                f"beside a model of CTranslate2; allowed: {names}."
            )


def write_encoders(directory: Path, encoders: Mapping[str, Any], positions: int | None) -> None:
    """Writes "inputs" and "targets" encoders and the number of positions (None: no end)."""
    text: dict[str, Any] = {"positions": positions}
    for side in ("inputs", "targets"):
        encoder, kind = encoders[side], _kind(encoders[side])
        text[side] = {"kind": kind}
        if kind != "bytes":
            text[side]["file"] = f"{side}.{kind}"
            encoder.store_to_file(directory / text[side]["file"])
        if kind == "tokens":
            text[side]["replace_oov"] = encoder.replace_oov
    (directory / ENCODERS_FILE).write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


def read_encoders(directory: str) -> tuple[dict[str, Any], int | None]:
    """What `write_encoders` has written.

    Raises:
        UserError: the directory holds none of it.
    """
    try:
        with open(os.path.join(directory, ENCODERS_FILE), encoding="utf-8") as file:
            text = json.load(file)
        encoders = {side: _read(directory, text[side]) for side in ("inputs", "targets")}
        return encoders, text["positions"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{directory} is no model of t2t-keras-export --format=ctranslate2: "
            f"{ENCODERS_FILE} cannot be read ({error})."
        ) from error


def _kind(encoder) -> str | None:
    return next((name for name, kind in _KINDS.items() if type(encoder) is kind), None)


def _read(directory: str, entry: Mapping[str, Any]):
    kind = entry["kind"]
    if kind == "bytes":
        return ByteTextEncoder()
    path = os.path.join(directory, entry["file"])
    if kind == "tokens":
        return TokenTextEncoder(path, replace_oov=entry["replace_oov"])
    return SubwordTextEncoder(path)
