"""How good a model is on held-out data: loss, accuracy, and BLEU or F1 of what it writes."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from t2t_keras.data import Problem
from t2t_keras.decoding import Translator
from t2t_keras.decoding.translator import until_eos
from t2t_keras.errors import UserError
from t2t_keras.losses import padded_cross_entropy, token_accuracy
from t2t_keras.open_graph import open_graph_of_model
from t2t_keras.transformer import is_packed


class Evaluation:
    """Evaluates a model again and again on the same batches.

    Args:
        model: a `Transformer`.
        dataset: of {"inputs", "targets"} batches, or of packed ones, each example once.
        encoders: "inputs" and "targets" text encoders.
        decode_settings: for BLEU or F1.
        steps: at most so many batches (T2T's `--eval_steps`); 0 takes all.
        problem: whose `quality` tells how good texts are; None: BLEU does.
    """

    def __init__(
        self,
        model,
        dataset,
        encoders,
        decode_settings,
        steps: int = 0,
        problem: Problem | None = None,
    ):
        self.model = model
        self.problem = problem or Problem()
        self.batches = dataset.take(steps) if steps else dataset
        self.translator = Translator(model, encoders, decode_settings)

    def __call__(self, done: Callable[[], None] | None = None) -> dict[str, float]:
        """Returns "loss" (nats a token, not smoothed), "accuracy" (0 to 1), "bleu" or "f1".

        BLEU (0 to 100) is sacreBLEU (13a, cased) of the decoded text against the decoded targets;
        a problem of parsing has F1 (0 to 100) instead. Packed batches give neither: T2T does not
        decode them either.

        Args:
            done: called after every batch.
        """
        loss = right = tokens = 0.0
        inputs, references, outputs = [], [], []
        for batch in self.batches:
            try:
                sums = _sums(self.model, batch)
            except tf.errors.ResourceExhaustedError as error:
                rows, length = batch["targets"].shape
                raise UserError(
                    f"{rows} x {length} target ids of the evaluation data do not fit into memory: "
                    "lower batch_size, or set eval_drop_long_sequences=true."
                ) from error
            batch_loss, batch_right, batch_tokens = (float(x) for x in sums)
            loss += batch_loss
            right += batch_right
            tokens += batch_tokens
            if not is_packed(batch):
                source = self.translator.encoders["inputs"]
                inputs += [source.decode(until_eos(ids)) for ids in batch["inputs"].numpy()]
                references += [self.translator.text(ids) for ids in batch["targets"].numpy()]
                outputs += [t.texts[0] for t in self.translator.translate_ids(batch["inputs"])]
            if done:
                done()
        if not tokens:
            raise UserError("the evaluation data holds no tokens: generate it again.")
        figures = {"loss": loss / tokens, "accuracy": right / tokens}
        if outputs:
            quality = self.problem.quality(inputs, references, outputs)
            figures[self.problem.quality_metric] = quality
        return figures


@open_graph_of_model
def _sums(model, batch):
    logits = model(batch)
    loss, tokens = padded_cross_entropy(logits, batch["targets"])
    right, _ = token_accuracy(logits, batch["targets"])
    return loss, right, tokens
