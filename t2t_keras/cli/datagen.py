"""`t2t-keras-datagen`: generates a vocabulary and TFRecord shards from raw text.

Examples:
    t2t-keras-datagen --problem=translate_ende_numbers --data_dir=data
    t2t-keras-datagen --problem=translate_files --train_files=a.en,a.de \\
        --dev_files=dev.en,dev.de --data_dir=data
    t2t-keras-datagen --list  # problems, hparams sets and models
"""

import glob
import os
import random

from t2t_keras import registry
from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, integer, number, string, strings, switch
from t2t_keras.errors import UserError
from t2t_keras.t2t_names import is_users_own, warn_of_uncalled_hooks


def define_flags() -> None:
    strings("problem", "Names of the problems to generate, separated by commas.")
    string("data_dir", "Directory for vocabularies and shards.")
    options.seed(429459, "Seed for shuffling the examples.")
    options.define("t2t_usr_dir")
    options.define_generation()
    integer("clean_max_characters", 0, "Drop training pairs with a longer side; 0: no limit.")
    number("clean_max_ratio", 0.0, "Drop training pairs with a larger length ratio; 0: no limit.")
    letters = "Drop training pairs with a side that has a smaller share of letters, 0 to 1."
    number("clean_min_letters", 0.0, letters, upper_bound=1)
    switch("clean_copies", "Drop training pairs whose sides are equal.")
    switch("clean_duplicates", "Drop repeated training pairs.")


def main() -> None:
    from t2t_keras.data.generation import CleaningRules

    options.load_user_directory()
    if not FLAGS.problem:
        known = ", ".join(registry.list_problems())
        raise UserError(f"--problem is missing: give one or more of {known}.")
    problems = [registry.problem(name) for name in FLAGS.problem]
    options.configure(*problems)
    data_dir, tmp_dir = options.required("data_dir"), options.tmp_dir()
    rules, processes = options.from_flags(CleaningRules, "clean_"), options.processes()
    for problem in problems:
        print(f"{problem.name}: {tmp_dir} -> {data_dir}", flush=True)
        problem.processes = processes
        if rules != CleaningRules():  # otherwise the problem's own
            problem.cleaning = rules
        if FLAGS["random_seed"].present:
            problem.random_seed = FLAGS.random_seed
        there = glob.glob(f"{glob.escape(data_dir)}/{problem.dataset_filename()}-*")
        if FLAGS.tfds or problem.tfds_name or there:  # those may have to be measured
            options.import_tensorflow()
        generate(problem, data_dir, tmp_dir)
        print(*describe(problem, data_dir), sep="\n", flush=True)


def generate(problem, data_dir: str, tmp_dir: str) -> None:
    """Generates the data of one problem; seeds the random generators that its hooks use, as in T2T."""
    import numpy as np

    from t2t_keras.data.text_problem import make_directory

    if is_users_own(type(problem), "generate_data"):  # which finds the directory in T2T
        make_directory(data_dir)
    warn_of_uncalled_hooks(problem)
    random.seed(problem.random_seed)
    np.random.seed(problem.random_seed % 2**32)
    problem.generate_data(data_dir, tmp_dir)


def describe(problem, data_dir: str) -> list[str]:
    """Returns lines that describe the vocabulary and each split in `data_dir`.

    For the training data they include lengths, and the padding in batches of `transformer_base`.
    """
    from t2t_keras.data import DatasetSplit, generation
    from t2t_keras.data.reading import buckets_for
    from t2t_keras.data.shards import read_index

    name = problem.dataset_filename()
    base = registry.hparams("transformer_base")
    longest = problem.max_length(base)
    buckets = buckets_for(base, True, longest=longest, packed_length=problem.packed_length)
    encoders = problem.feature_encoders(data_dir)
    lines = []
    sides = [side for side in problem.sides if side in encoders]
    for side, file in zip(sides, problem.vocab_filenames, strict=False):
        where = file if os.path.isfile(f"{data_dir}/{file}") else "no file"
        lines.append(f"  vocabulary: {encoders[side].vocab_size} tokens in {where}")
    for item in problem.dataset_splits:
        split = item["split"]
        index = read_index(data_dir, name, split, problem.sides)
        lines += generation.describe_split(data_dir, name, split, index)
        if split == DatasetSplit.TRAIN:
            details = generation.length_histogram(index.lengths)
            details += generation.padding_table(index.lengths, buckets)
            lines += [f"    {line}" for line in details]
    return lines


run = app.command(define_flags, main, required=["problem", "data_dir"])

if __name__ == "__main__":
    run()
