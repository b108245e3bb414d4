"""How good a model is on held-out data: loss, accuracy, and BLEU of real translations."""

from __future__ import annotations

from collections.abc import Callable

from t2t_keras.decoding import Translator
from t2t_keras.errors import UserError
from t2t_keras.losses import padded_cross_entropy, token_accuracy
from t2t_keras.metrics import bleu
from t2t_keras.training.batch_function import batch_function
from t2t_keras.transformer import is_packed


class Evaluation:
    """Evaluates a model again and again on the same batches.

    Args:
        model: a `Transformer`.
        dataset: of {"inputs", "targets"} batches, or of packed ones, each example once.
        encoders: "inputs" and "targets" text encoders.
        decode_settings: for BLEU.
        steps: at most so many batches (T2T's `--eval_steps`); 0 takes all.
    """

    def __init__(self, model, dataset, encoders, decode_settings, steps: int = 0):
        self.model = model
        self.batches = dataset.take(steps) if steps else dataset
        self.translator = Translator(model, encoders, decode_settings)
        self._measure = batch_function(self._sums)

    def __call__(self, done: Callable[[], None] | None = None) -> dict[str, float]:
        """Returns "loss" (nats a token, not smoothed), "accuracy" (0 to 1) and "bleu" (0 to 100).

        BLEU is sacreBLEU (13a, cased) of the decoded text against the decoded targets. Packed
        batches give no "bleu": T2T does not decode them either.

        Args:
            done: called after every batch.
        """
        loss = right = tokens = 0.0
        references, hypotheses = [], []
        for batch in self.batches:
            sums = self._measure(batch)
            batch_loss, batch_right, batch_tokens = (float(x) for x in sums)
            loss += batch_loss
            right += batch_right
            tokens += batch_tokens
            if not is_packed(batch):
                references += [
                    self.translator.text(targets) for targets in batch["targets"].numpy()
                ]
                hypotheses += [t.texts[0] for t in self.translator.translate_ids(batch["inputs"])]
            if done:
                done()
        if not tokens:
            raise UserError("the evaluation data holds no tokens: generate it again.")
        figures = {"loss": loss / tokens, "accuracy": right / tokens}
        if hypotheses:
            figures["bleu"] = bleu(references, hypotheses).sacrebleu
        return figures

    def _sums(self, batch):
        logits = self.model(batch)
        loss, tokens = padded_cross_entropy(logits, batch["targets"])
        right, _ = token_accuracy(logits, batch["targets"])
        return loss, right, tokens
