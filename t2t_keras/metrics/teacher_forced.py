"""T2T's metrics of teacher-forced predictions: of each next id, given the right ids before it.

They compare ids, so they differ from scores of decoded text. As in T2T, BLEU and ROUGE are means over
batches, and compare what follows a sentence, too: padding with what is predicted there.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from t2t_keras.ids import PAD_ID
from t2t_keras.metrics.bleu import t2t_bleu


def accuracy_top5(best: np.ndarray, labels: np.ndarray, counted: np.ndarray) -> tuple[float, float]:
    """Returns how many labels are among the best ids, and the number of labels."""
    return np.sum((best == labels[:, :, None]).any(-1) & counted), np.sum(counted)


def accuracy_per_sequence(best, labels, counted) -> tuple[float, float]:
    """Returns the number of sequences without a wrong id, and that of sequences."""
    wrong = (best[:, :, 0] != labels) & counted
    return np.sum(~wrong.any(1)), len(wrong)


def approx_bleu_score(best, labels, counted) -> tuple[float, float]:
    """Returns BLEU of ids up to order 4, smoothed as in `t2t-bleu`, and 1."""
    references, hypotheses = (
        [" ".join(map(str, ids)) for ids in rows.tolist()] for rows in (labels, best[:, :, 0])
    )
    return t2t_bleu(references, hypotheses, tokenize=str.split) / 100, 1


def rouge_2_fscore(best, labels, counted) -> tuple[float, float]:
    """Returns the mean F1 of pairs of ids, each counted once in a sequence, and 1."""
    scores = []
    for rows in zip(best[:, :, 0].tolist(), labels.tolist(), strict=True):
        ours, theirs = (set(itertools.pairwise(ids)) for ids in rows)
        precision, recall = (len(ours & theirs) / max(1, len(each)) for each in (ours, theirs))
        scores.append(2 * precision * recall / (precision + recall + 1e-8))
    return float(np.mean(scores)), 1


def rouge_l_fscore(best, labels, counted) -> tuple[float, float]:
    """Returns the mean F1 of the longest common subsequence, and 1."""
    rows, length = labels.shape
    common = np.zeros([rows, length + 1], np.int64)  # with the first n labels, of the ids so far
    for ids in best[:, :, 0].T:
        longer = common[:, :-1] + (ids[:, None] == labels)
        np.maximum(common[:, 1:], longer, out=common[:, 1:])
        np.maximum.accumulate(common, axis=1, out=common)
    # Both have the same length, so precision, recall and F1 are equal.
    return float(np.mean(common[:, -1] / length)), 1


METRICS = {
    "accuracy_top5": accuracy_top5,
    "accuracy_per_sequence": accuracy_per_sequence,
    "approx_bleu_score": approx_bleu_score,
    "rouge_2_fscore": rouge_2_fscore,
    "rouge_L_fscore": rouge_l_fscore,
}
"""T2T's names -> functions of the 5 best ids [B, T, 5], labels [B, T], and which of these count [B, T].

They return a sum and a weight; the metric, 0 to 1, is the ratio of their totals over all batches."""


class TeacherForced:
    """The metrics of all batches.

    Args:
        names: those of `METRICS` to compute.
        classes: True: the labels are classes, of which 0 is one; False: 0 is padding.
    """

    def __init__(self, names: Sequence[str], classes: bool = False):
        self.totals = {name: np.zeros(2) for name in names}
        self.classes = classes

    def add(self, best: np.ndarray, labels: np.ndarray) -> None:
        """Adds a batch: the best ids [B, T, 5] or classes [B, 5], and labels [B, T]."""
        best = best.reshape(*labels.shape, best.shape[-1])
        counted = (labels != PAD_ID) | self.classes
        # T2T pads to the longest of a batch, and ours may be padded further.
        length = np.flatnonzero(counted.any(0)).max(initial=0) + 1
        batch = [each[:, :length] for each in (best, labels, counted)]
        for name, total in self.totals.items():
            total += METRICS[name](*batch)

    def metrics(self) -> dict[str, float]:
        """Returns the metrics by name."""
        return {name: float(sum_ / weight) for name, (sum_, weight) in self.totals.items()}
