"""Files of a tensor2tensor user: T2T's released test checkpoint, a vocabulary and TFRecord shards.

Where the released vocabulary, which is text, is absent, one of as many made-up subwords stands for it.
"""

import shutil

import corpus_files
import golden
import numpy as np
from markdown_blocks import ROOT

PROBLEM = "translate_ende_wmt8k"
VOCABULARY = "vocab.translate_ende_wmt8k.8192.subwords"
RELEASED = ROOT.parent / "shared/golden/t2t_release"
"""Directory of the released vocabulary, and of the flags of `t2t-trainer` beside the checkpoint."""


def write(directory, made_up=False):
    """Writes `t2t_train` and `t2t_data`, as T2T leaves them."""
    train, data = directory / "t2t_train", directory / "t2t_data"
    shutil.copytree(golden.FOLDER / "t2t_release", train)
    (train / "expected.npz").unlink()
    data.mkdir()
    if RELEASED.exists() and not made_up:
        shutil.copy(RELEASED / VOCABULARY, data)
    else:
        lines = (f"'{subword}'\n" for subword in made_up_subwords(len(expected()["logits"][0, 0])))
        (data / VOCABULARY).write_text("".join(lines))
    sides = zip(expected()["inputs"], expected()["targets"], strict=True)
    rows = [{"inputs": ids(inputs), "targets": ids(targets)} for inputs, targets in sides]
    for split, shards in (("train", 100), ("dev", 1)):
        corpus_files.write_shards(data, PROBLEM, split, rows, shards)


def expected():
    """T2T's ids of three sentences and their translations, and what it made of them."""
    return dict(np.load(golden.FOLDER / "t2t_release" / "expected.npz"))


def ids(row):
    """A row of ids without its padding."""
    return [int(number) for number in row if number]


def made_up_subwords(count):
    characters = [*"Helo!abcdfgh ,.\\_u;0123456789"]
    numbers = (f"{number}_" for number in range(count - len(characters) - 2))
    return ["<pad>", "<EOS>", *characters, *numbers]
