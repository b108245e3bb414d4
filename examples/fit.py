"""Training with Keras's `compile` and `fit`: reversing rows of letters.

The batches, the loss and the learning rate are those of `t2t-keras-train`. It saves a run that
`t2t-keras-decode`, `t2t-keras-avg` and `t2t-keras-eval` can read; run again, it resumes from the newest
checkpoint.
"""

import random
import tempfile
from pathlib import Path

import keras

import t2t_keras as t2t
from t2t_keras.training import EvaluateOnDev, Evaluation, SaveCheckpoints, prepare_fit

STEPS_PER_EPOCH = 200


class ReverseLetters(t2t.data.Text2TextProblem):
    """`a b c` -> `c b a`."""

    vocab_type = t2t.data.VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 2}, {"split": "dev", "shards": 1}]
    is_generate_per_split = True

    def generate_samples(self, data_dir, tmp_dir, split):
        random_letters = random.Random(split)
        for _ in range(5000 if split == "train" else 50):
            row = " ".join(random_letters.choices("abcdefgh", k=random_letters.randint(2, 4)))
            yield {"inputs": row, "targets": row[::-1]}


def main(directory: str, epochs: int = 4, model_class=t2t.Transformer) -> keras.Model:
    """Trains in a directory and prints loss and BLEU."""
    data_dir, run_dir = Path(directory, "data"), Path(directory, "run")
    problem = ReverseLetters()
    problem.generate_data(data_dir, directory)
    encoders = problem.get_feature_encoders(data_dir)
    hp = t2t.registry.hparams("transformer_tiny").replace(
        hidden_size=64,
        filter_size=128,
        batch_size=256,
        max_length=8,
        attention_dropout=0.0,
        relu_dropout=0.0,
        layer_prepostprocess_dropout=0.0,
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=100,
    )
    keras.utils.set_random_seed(1)  # the same initial weights every time
    model = model_class(
        hp,
        source_vocab_size=encoders["inputs"].vocab_size,
        target_vocab_size=encoders["targets"].vocab_size,
    )
    model.compile(t2t.optimizers.create(hp), jit_compile=False)
    prepare_fit(model)

    saving = SaveCheckpoints(model, str(run_dir))
    step = saving.restore()
    dev = t2t.data.dataset(problem, "dev", data_dir, hp)
    scoring = EvaluateOnDev(Evaluation(model, dev, encoders, t2t.decoding.DecodeSettings()))
    model.fit(
        t2t.data.dataset(problem, "train", data_dir, hp, start_step=step),
        initial_epoch=step // STEPS_PER_EPOCH,
        epochs=epochs,
        steps_per_epoch=STEPS_PER_EPOCH,
        callbacks=[scoring, saving],
        shuffle=False,  # the dataset is already shuffled
        verbose=2,
    )
    return model


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
