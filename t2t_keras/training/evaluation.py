"""Evaluation on held-out data: loss, accuracy, and BLEU, F1 or perplexity; early stopping."""

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.data import Problem, trim_padding
from t2t_keras.decoding import Translator
from t2t_keras.errors import UserError, require_one_of, warn
from t2t_keras.files import parse_json, write_text
from t2t_keras.ids import EOS_ID, PAD_ID, until_eos, without_padding
from t2t_keras.metrics import teacher_forced
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL
from t2t_keras.open_graph import open_graph_of_model
from t2t_keras.t2t_names import is_users_own, warn_of_uncalled_hooks
from t2t_keras.text.lines import iterate_raw_lines
from t2t_keras.transformer import is_packed


class Evaluation:
    """Evaluates a model repeatedly on the same batches.

    Args:
        model: a `Transformer`.
        dataset: {"inputs", "targets"} batches, also packed ones, with each example once.
        encoders: "inputs" and "targets" text encoders; "inputs" only if the problem has inputs.
        decode_settings: how to decode for BLEU or F1 of texts.
        steps: maximum number of batches (T2T's `--eval_steps`); 0 takes all.
        problem: its `quality` scores the texts; None computes BLEU. A user's `eval_metrics` adds metrics of
            teacher-forced predictions; a warning names those that are not computed.
    """

    def __init__(
        self, model, dataset, encoders, decode_settings, steps=0, problem: Problem | None = None
    ):
        self.model = model
        self.problem = problem = problem or Problem()
        dataset = dataset.take(steps) if steps else dataset
        self.batches = trim_padding(dataset.map(_without_empty_rows))  # as training does
        self.translator: Any = None
        if model.kind != CLASSIFICATION:
            constraint = problem.constraint(encoders)
            self.translator = Translator(model, encoders, decode_settings, constraint=constraint)
        warn_of_uncalled_hooks(problem)
        asked = problem.eval_metrics() if is_users_own(type(problem), "eval_metrics") else []
        self.t2t_metrics = [name for name in asked if name in T2T_METRICS]
        if absent := [name for name in asked if name not in (*T2T_METRICS, "accuracy")]:
            warn(f"eval_metrics of {problem.name}: {', '.join(absent)} are not computed")

    def __call__(self, done: Callable[[], None] | None = None) -> dict[str, float]:
        """Returns "loss" (nats per token, not smoothed), "accuracy" (0 to 1), "bleu" or "f1".

        BLEU (0 to 100) is sacreBLEU (13a, cased) of the decoded text against the decoded targets;
        parsing has F1 (0 to 100) instead. Packed batches are not decoded, as in T2T, and give
        neither. Classification has F1, the mean over classes. A language model has "perplexity" per
        token, "word_perplexity" and "character_perplexity": e to the total loss divided by the number
        of words or characters, where each end of line counts as one. Those of `T2T_METRICS` that a
        problem's `eval_metrics` lists come with T2T's values.

        `done` is called after every batch, and again after every decoded batch.
        """
        totals = np.zeros(3)  # loss, correct tokens, tokens
        more: Any = _ClassF1()
        if self.model.kind != CLASSIFICATION:
            kind = _Perplexities if self.model.kind == LANGUAGE_MODEL else _Quality
            more = kind(self.translator, self.problem)
        names = [name for name in self.t2t_metrics if name in teacher_forced.METRICS]
        forced = teacher_forced.TeacherForced(names, self.model.kind == CLASSIFICATION)
        for batch in self.batches:
            try:
                *sums, classes, best = _sums(self.model, batch, bool(names))
            except tf.errors.ResourceExhaustedError as error:
                rows, length = batch["targets"].shape
                raise UserError(
                    f"{rows} x {length} target ids of the evaluation data do not fit into memory: "
                    "lower batch_size, or set eval_drop_long_sequences=true."
                ) from error
            totals += [float(x) for x in sums]
            more.add(batch, classes)
            if names:
                forced.add(best.numpy(), batch["targets"].numpy())
            if done:
                done()
        loss, right, tokens = map(float, totals)
        if not tokens:
            raise UserError("the evaluation data holds no tokens: generate it again.")
        metrics = {"loss": loss / tokens, "accuracy": right / tokens}
        t2ts = {"neg_log_perplexity": -metrics["loss"]} | forced.metrics()
        return metrics | {name: t2ts[name] for name in self.t2t_metrics} | more.metrics(loss, done)


@tf.autograph.experimental.do_not_convert
def _without_empty_rows(batch):
    """Removes rows that only fill up a batch; a classifier would count them as class 0."""
    used = tf.reduce_any(tf.concat(list(batch.values()), 1) != PAD_ID, 1)
    return {name: tf.boolean_mask(ids, used) for name, ids in batch.items()}


@open_graph_of_model
def _sums(model, batch, with_best: bool):
    """Returns the loss, the number of correct tokens and of tokens, and a classifier's classes [B].

    With `with_best`, also the 5 best ids [B, T, 5] or classes [B, 5].
    """
    logits = model(batch)
    loss, tokens = model.loss_sums(logits, batch["targets"])
    right, _ = model.right_sums(logits, batch["targets"])
    classes = tf.argmax(logits, -1) if model.kind == CLASSIFICATION else ()
    best = tf.math.top_k(logits, min(5, logits.shape[-1])).indices if with_best else ()
    return loss, right, tokens, classes, best


# Metrics besides loss and accuracy, by kind of problem


class _Quality:
    """BLEU of translations, or the problem's own metric; nothing for packed batches."""

    def __init__(self, translator: Translator, problem: Problem):
        self.translator, self.problem = translator, problem
        self.inputs: list[Any] = []
        self.references: list[str] = []

    def add(self, batch, classes) -> None:
        # `metrics` decodes all batches together, in fuller ones
        if not is_packed(batch):
            self.inputs += map(without_padding, batch["inputs"].numpy())
            self.references += [self.translator.text(ids) for ids in batch["targets"].numpy()]

    def metrics(self, loss: float, done: Callable[[], None] | None) -> dict[str, float]:
        if not self.inputs:
            return {}
        translations = self.translator.translate_ids(self.inputs, done and (lambda batch: done()))
        quality = self.problem.quality(
            [self.translator.encoders["inputs"].decode(until_eos(ids)) for ids in self.inputs],
            self.references,
            [translation.texts[0] for translation in translations],
        )
        # A user's hook may return NumPy's float32, which `json` refuses.
        return {self.problem.quality_metric: float(quality)}


class _Perplexities:
    """Perplexity of a language model per token, word and character; an end of line counts as either."""

    def __init__(self, translator: Translator, problem: Problem):
        self.translator = translator
        self.tokens = self.words = self.characters = 0

    def add(self, batch, classes) -> None:
        for row in batch["targets"].numpy():
            row = row[row != PAD_ID]
            self.tokens += len(row)
            for line in np.split(row, np.flatnonzero(row == EOS_ID) + 1):
                text, ends = self.translator.text(line), EOS_ID in line
                self.words += len(text.split()) + ends
                self.characters += len(text) + ends

    def metrics(self, loss: float, done: Callable[[], None] | None) -> dict[str, float]:
        units = {
            "perplexity": self.tokens,
            "word_perplexity": self.words,
            "character_perplexity": self.characters,
        }
        return {name: perplexity(loss / max(1, number)) for name, number in units.items()}


class _ClassF1:
    """Macro-averaged F1, 0 to 100, of the classes that occur as label or prediction."""

    def __init__(self):
        self.pairs: list[np.ndarray] = []

    def add(self, batch, classes) -> None:
        self.pairs.append(np.stack([batch["targets"].numpy()[:, 0], classes.numpy()]))

    def metrics(self, loss: float, done: Callable[[], None] | None) -> dict[str, float]:
        labels, predicted = np.concatenate(self.pairs, axis=1)
        scores = []
        for each in np.union1d(labels, predicted):
            ours, theirs = predicted == each, labels == each
            scores.append(2 * np.sum(ours & theirs) / (np.sum(theirs) + np.sum(ours)))
        return {"f1": 100 * float(np.mean(scores))}


def perplexity(loss: float) -> float:
    """Returns e to the loss; infinity if that overflows."""
    return math.inf if loss > 709.78 else math.exp(loss)


class EvaluationHistory:
    """Dev metrics by step: `evaluations.jsonl` of a run, one JSON object per line.

    Evaluations after `until`, the step that the run resumes from, are dropped, since these steps will
    be repeated. With `write=False`, `add` does not write the file.
    """

    def __init__(self, directory: str, until: int, write: bool = True):
        self._path = Path(directory) / "evaluations.jsonl"
        self._write = write
        self.metrics: dict[int, dict[str, float]] = {}
        lines = iterate_raw_lines(self._path) if self._path.exists() else ()
        for number, line in enumerate(lines, 1):
            kind = {"step": range(2**63), str: (float,)}
            row = parse_json(line, kind, f"{self._path}, line {number}", "remove it to continue")
            if (step := row.pop("step")) <= until:
                self.metrics[step] = {
                    each: math.nan if value is None else value for each, value in row.items()
                }

    def add(self, step: int, metrics: dict[str, float]) -> None:
        """Records an evaluation; it is on disk when this returns."""
        self.metrics[step] = metrics
        if self._write:
            rows = []
            for each, row in sorted(self.metrics.items()):  # JSON has no Infinity and no NaN
                finite = {name: x if math.isfinite(x) else None for name, x in row.items()}
                rows.append(json.dumps({"step": each, **finite}))
            write_text(self._path, "\n".join(rows) + "\n")

    def of(self, metric: str) -> tuple[list[int], list[float]]:
        """Returns the steps that have a metric, in ascending order, and its values."""
        steps = [step for step in sorted(self.metrics) if metric in self.metrics[step]]
        return steps, [self.metrics[step][metric] for step in steps]

    def best(self, metric: str, steps: Collection[int] | None = None) -> int | None:
        """Returns the first step, of `steps` if given, with the best finite `metric`; None if there is none."""
        sign = 1 if METRICS[metric] else -1
        found = [(n, x) for n, x in zip(*self.of(metric), strict=True) if math.isfinite(x)]
        signed = [(sign * value, step) for step, value in found if steps is None or step in steps]
        return min(signed)[1] if signed else None


METRICS = {"loss": True, "accuracy": False, "bleu": False, "f1": False}
"""The metrics of an evaluation -> True if less is better."""


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Ends a run when a dev metric no longer improves (T2T's `--eval_early_stopping_*`).

    It ends when nothing since is better by `delta` than the latest evaluation `steps` steps old.
    """

    steps: int | None = None
    """Number of steps without improvement; None never stops."""
    metric: str = "loss"
    """One of "loss", "accuracy" and the problem's "bleu" or "f1"."""
    delta: float = 0.1
    """Required improvement, in units of the metric (BLEU and F1: 0 to 100)."""
    minimize: bool | None = None
    """True if less is better; None means True for the loss only."""

    def __post_init__(self):
        if self.steps is not None and self.steps < 1:
            raise UserError(f"eval_early_stopping_steps must be 1 or more, got {self.steps}.")
        require_one_of("eval_early_stopping_metric", self.metric, METRICS)

    def reached(self, steps: Sequence[int], values: Sequence[float]) -> bool:
        """Returns True if the run should stop after `values` at `steps` (ascending)."""
        if self.steps is None:
            return False
        long_ago = [i for i, step in enumerate(steps) if step <= steps[-1] - self.steps]
        if not long_ago:
            return False
        less = METRICS[self.metric] if self.minimize is None else self.minimize
        first, *later = values[long_ago[-1] :]
        gains = (first - value if less else value - first for value in later)
        return all(gain < self.delta or gain <= 0 for gain in gains)  # a delta may be 0


QUALITIES = ("bleu", "f1")
"""The metrics that need decoding; messages have them in capitals."""

T2T_METRICS = (*teacher_forced.METRICS, "neg_log_perplexity")
"""The metrics by T2T's names that a problem's `eval_metrics` may list, besides accuracy."""


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Returns the metrics besides loss and accuracy, such as "  BLEU 27.30", or ""."""
    words = "".join(f"  {n.upper()} {metrics[n]:.2f}" for n in QUALITIES if n in metrics)
    words += "".join(f"  {name} {metrics[name]:.4f}" for name in T2T_METRICS if name in metrics)
    if "perplexity" in metrics:
        words += "  perplexity {perplexity:.4f} (word {word_perplexity:.3f}, ".format(**metrics)
        words += f"character {metrics['character_perplexity']:.4f})"
    return words


def require_metrics(problem, best_metric: str, early_stopping: EarlyStopping) -> None:
    """Raises a `UserError` unless evaluations of the problem have the metrics that a run needs."""
    require_one_of("best_metric", best_metric, METRICS)
    wanted = {best_metric}
    if early_stopping.steps is not None:
        wanted.add(early_stopping.metric)
    for name in sorted(wanted.intersection(QUALITIES)):
        if problem.packed_length:
            raise UserError(f"packed {problem.name} has no {name}: choose loss or accuracy.")
        if name != problem.quality_metric:
            *most, last = dict.fromkeys(["loss", "accuracy", problem.quality_metric])
            raise UserError(f"{problem.name} has no {name}: choose {', '.join(most)} or {last}.")
