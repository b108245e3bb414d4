"""ROUGE of summaries, with the package `rouge-score` (`pip install 't2t-keras[rouge]'`)."""

from __future__ import annotations

from collections.abc import Sequence

from t2t_keras.errors import UserError

NAMES = ("rouge1", "rouge2", "rougeL")
"""Single words, pairs of them, and the longest common subsequence."""


def rouge(references: Sequence[Sequence[str]], hypotheses: Sequence[str]) -> dict[str, float]:
    """Returns the mean F1, 0 to 100, of each of `NAMES`, with stemmed words and ignoring case.

    Args:
        references: one or more references for each hypothesis; the best one counts.

    Raises:
        UserError: there are no summaries, the numbers differ, or `rouge-score` is missing.
    """
    if not hypotheses or len(references) != len(hypotheses):
        raise UserError(
            f"ROUGE needs a reference for each summary, got {len(references)} and {len(hypotheses)}."
        )
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise UserError(f"ROUGE is missing ({error}): pip install 't2t-keras[rouge]'.") from error
    scorer = RougeScorer(NAMES, use_stemmer=True)
    pairs = zip(references, hypotheses, strict=True)
    scores = [scorer.score_multi(list(several), hypothesis) for several, hypothesis in pairs]
    return {name: 100 * sum(s[name].fmeasure for s in scores) / len(scores) for name in NAMES}
