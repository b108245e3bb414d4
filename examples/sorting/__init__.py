"""A custom problem and hparams set, which `--t2t_usr_dir=examples/sorting` registers."""

import random

from t2t_keras import data, registry
from t2t_keras.hparams.transformer import transformer_tiny


@registry.register_problem
class SortLetters(data.Text2TextProblem):  # --problem=sort_letters
    """`d a c b` -> `a b c d`, in characters."""

    vocab_type = data.VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 2}, {"split": "dev", "shards": 1}]
    is_generate_per_split = True

    def generate_samples(self, data_dir, tmp_dir, split):
        random_letters = random.Random(split)
        for _ in range(10_000 if split == "train" else 100):
            row = random_letters.choices("abcdefgh", k=random_letters.randint(4, 8))
            yield {"inputs": " ".join(row), "targets": " ".join(sorted(row))}


@registry.register_hparams
def transformer_sorting():  # --hparams=transformer_sorting
    return transformer_tiny().replace(
        batch_size=1024,
        max_length=16,
        length_bucket_step=1.5,
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=500,
    )
