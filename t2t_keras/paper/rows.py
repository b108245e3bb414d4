"""The rows of the paper's tables 2, 3 and 4: data, settings, decoding and the paper's results."""

from __future__ import annotations

import dataclasses
from typing import Any

from t2t_keras.errors import UserError, nearest

DEV, TEST = "dev", "test"
"""Splits; for WMT 2014 newstest2013 and newstest2014."""

PERPLEXITY, BLEU, F1 = "perplexity", "BLEU", "F1"
"""The metrics that the paper reports."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        name: the name of the row and of its hparams set.
        place: table and group in the paper.
        problem: the registered name of the problem.
        split: the split to evaluate, "dev" or "test".
        updates: the number of training updates.
        vocab_size: the approximate vocabulary size.
        averaged: how many last checkpoints to average; 1: no averaging.
        apart: updates between these checkpoints.
        paper: the paper's results by metric.
        paper_parameters: the paper's number of parameters in millions; 0 if not given.
        paper_flops: the paper's estimate of the training cost; 0 if not given.
        beam_size, alpha, extra_length: decode hparams.
        source_length, target_length: mean tokens per sentence, for the cost estimate.
    """

    name: str
    place: str
    problem: str
    split: str
    updates: int
    vocab_size: int
    averaged: int
    apart: int
    paper: dict[str, float]
    paper_parameters: float = 0
    paper_flops: float = 0
    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 50
    source_length: int = 30
    target_length: int = 30

    @property
    def decode_hparams(self) -> str:
        """The row's decode hparams in the grammar of `--decode_hparams`."""
        return f"beam_size={self.beam_size},alpha={self.alpha},extra_length={self.extra_length}"

    @property
    def language(self) -> str:
        """The language of the tokenization in the paper's BLEU: "de" or "fr"."""
        return "fr" if self.problem == _ENFR else "de"


_ENDE, _ENFR = "translate_ende_wmt14", "translate_enfr_wmt14"

# `apart`: ten minutes, at 0.4 and 1.0 seconds per update on the paper's machine (section 5.2).
_BASE: dict[str, Any] = {"updates": 100_000, "averaged": 5, "apart": 1_500}
_BIG: dict[str, Any] = {"updates": 300_000, "averaged": 20, "apart": 600}
# Section 6.2.
_NOT_AVERAGED: dict[str, Any] = {"averaged": 1, "apart": 5_000}

_TRANSLATION = [
    Row(
        name=name,
        place="table 2",
        problem=problem,
        split=TEST,
        vocab_size=37_000 if problem == _ENDE else 32_000,
        paper={BLEU: bleu},
        paper_parameters=millions,
        paper_flops=flops,
        **size,
    )
    for name, problem, bleu, millions, flops, size in (
        ("paper_base", _ENDE, 27.3, 65, 3.3e18, _BASE),
        ("paper_base_enfr", _ENFR, 38.1, 0, 3.3e18, _BASE),
        ("paper_big", _ENDE, 28.4, 213, 2.3e19, _BIG),
        ("paper_big_enfr", _ENFR, 41.8, 0, 2.3e19, _BIG),
    )
]

_PARSING = [
    Row(
        name=f"paper_parsing_{name}",
        place=f"table 4, {place}",
        problem=f"parsing_english_{problem}",
        split=TEST,
        vocab_size=vocab_size,
        paper={F1: f1},
        beam_size=21,
        alpha=0.3,
        extra_length=300,
        target_length=75,
        **_BASE,
    )
    for name, place, problem, vocab_size, f1 in (
        ("wsj", "WSJ only", "ptb16k", 16_384, 91.3),
        ("semisup", "semi-supervised", "semisup32k", 32_768, 92.7),
    )
]

_TABLE_3 = [
    Row(
        name=f"paper_table3_{name}",
        place=f"table 3 {letter}".strip(),
        problem=_ENDE,
        split=DEV,
        updates=300_000 if name == "big" else 100_000,
        vocab_size=37_000,
        paper={PERPLEXITY: perplexity, BLEU: bleu},
        paper_parameters=millions,
        **_NOT_AVERAGED,
    )
    for name, letter, perplexity, bleu, millions in (
        ("base", "", 4.92, 25.8, 65),
        ("a_h1", "(A)", 5.29, 24.9, 0),
        ("a_h4", "(A)", 5.00, 25.5, 0),
        ("a_h16", "(A)", 4.91, 25.8, 0),
        ("a_h32", "(A)", 5.01, 25.4, 0),
        ("b_dk16", "(B)", 5.16, 25.1, 58),
        ("b_dk32", "(B)", 5.01, 25.4, 60),
        ("c_n2", "(C)", 6.11, 23.7, 36),
        ("c_n4", "(C)", 5.19, 25.3, 50),
        ("c_n8", "(C)", 4.88, 25.5, 80),
        ("c_d256", "(C)", 5.75, 24.5, 28),
        ("c_d1024", "(C)", 4.66, 26.0, 168),
        ("c_ff1024", "(C)", 5.12, 25.4, 53),
        ("c_ff4096", "(C)", 4.75, 26.2, 90),
        ("d_dropout0", "(D)", 5.77, 24.6, 0),
        ("d_dropout2", "(D)", 4.95, 25.5, 0),
        ("d_smoothing0", "(D)", 4.67, 25.3, 0),
        ("d_smoothing2", "(D)", 5.47, 25.7, 0),
        ("e_learned", "(E)", 4.92, 25.7, 0),
        ("big", "", 4.33, 26.4, 213),
    )
]

ROWS: dict[str, Row] = {row.name: row for row in (*_TRANSLATION, *_PARSING, *_TABLE_3)}
"""All rows by name."""


def row(name: str) -> Row:
    """Returns the row with this name.

    Raises:
        UserError: unknown name.
    """
    if name not in ROWS:
        raise UserError(
            f"unknown row {name!r}.{nearest(name, ROWS)} t2t-keras-paper list shows all {len(ROWS)}."
        )
    return ROWS[name]
