"""BLEU in the forms that tensor2tensor, the paper and today's papers report."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.metrics import tokenizers

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEUScore

_MAX_ORDER = 4


@dataclasses.dataclass(frozen=True)
class Bleu:
    """BLEU of one translation of a corpus, each figure from 0 to 100."""

    sacrebleu: float
    """Cased corpus BLEU on untokenised text (13a), to be compared between papers."""

    signature: str
    """How sacreBLEU computed its figure."""

    t2t_cased: float
    """What T2T's `t2t-bleu` calls BLEU_cased (international tokenisation)."""

    t2t_uncased: float
    """What `t2t-bleu` calls BLEU_uncased."""

    paper_style: float
    """Tokenised as Moses does, German compounds split, unsmoothed: near the paper's figures, which are
    about 0.7 higher than sacreBLEU's; `tokenizers.paper_style` says how near."""


def bleu(references: Sequence[str], hypotheses: Sequence[str], language: str = "de") -> Bleu:
    """Scores one translation against one reference a sentence, in plain text.

    Args:
        references, hypotheses: a sentence each.
        language: whose rules `paper_style` follows: "de", those of T2T's script, which it has for
            every language, or "fr".

    Raises:
        UserError: the two differ in length, or are empty; there are no rules for the language.
    """
    if language not in tokenizers.LANGUAGES:
        allowed = ", ".join(tokenizers.LANGUAGES)
        raise UserError(f"language must be one of {allowed}, got {language!r}.")
    if len(references) != len(hypotheses):
        raise UserError(
            f"{len(references)} references but {len(hypotheses)} translations; "
            "BLEU needs one translation for each reference, in the same order."
        )
    if not references:
        raise UserError("There are no sentences to score; BLEU needs at least one.")
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references]).score
    lower_references = [line.lower() for line in references]
    lower_hypotheses = [line.lower() for line in hypotheses]
    return Bleu(
        sacrebleu=score,
        signature=str(metric.get_signature()),
        t2t_cased=_t2t_score(references, hypotheses),
        t2t_uncased=_t2t_score(lower_references, lower_hypotheses),
        paper_style=_unsmoothed(
            references, hypotheses, functools.partial(tokenizers.paper_style, language=language)
        ).score,
    )


def _unsmoothed(
    references: Sequence[str], hypotheses: Sequence[str], tokenize: Callable[[str], list[str]]
) -> BLEUScore:
    """BLEU without smoothing, as multi-bleu computes it, with its n-gram counts."""
    from sacrebleu.metrics import BLEU

    def join(lines: Sequence[str]) -> list[str]:
        return [" ".join(tokenize(line)) for line in lines]

    metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=_MAX_ORDER, force=True)
    return metric.corpus_score(join(hypotheses), [join(references)])


def _t2t_score(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """T2T's `compute_bleu`, in the single precision that it returns.

    The k-th order without a match counts half a match, a quarter and so on; an order without a
    single n-gram counts as a precision of 1, where sacreBLEU gives up.
    """
    import numpy as np

    counted = _unsmoothed(references, hypotheses, tokenizers.international)
    if not counted.sys_len:
        return 0.0
    share = 1.0
    log_precisions = 0.0
    for matches, ngrams in zip(counted.counts, counted.totals, strict=True):
        if ngrams and not matches:
            share /= 2
        if ngrams:
            log_precisions += math.log((matches or share) / ngrams)
    brevity = min(0.0, 1 - counted.ref_len / counted.sys_len)
    return 100 * float(np.float32(math.exp(log_precisions / _MAX_ORDER + brevity)))
