"""Writes a split of `translate_ende_numbers` to two text files, one sentence per line.

python -m t2t_keras.problems.numbers test test.en test.de
"""

from __future__ import annotations

import sys
from pathlib import Path

from t2t_keras.problems.numbers.pairs import SIZES, pairs


def main(arguments: list[str]) -> None:
    """Writes the English sentences of a split to one file and the German ones to another."""
    if len(arguments) != 3 or arguments[0] not in SIZES:
        splits = "|".join(SIZES)
        sys.exit(f"usage: python -m t2t_keras.problems.numbers {splits} ENGLISH_FILE GERMAN_FILE")
    split, *paths = arguments
    for path, sentences in zip(paths, zip(*pairs(split), strict=True), strict=True):
        try:
            Path(path).write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
        except OSError as error:
            sys.exit(f"{path} cannot be written: {error.strerror}.")


if __name__ == "__main__":
    main(sys.argv[1:])
