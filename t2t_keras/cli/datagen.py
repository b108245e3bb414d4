"""`t2t-keras-datagen`: a vocabulary and TFRecord shards from raw text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.cli import app
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    from t2t_keras.data import Problem

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the command."""
    flags.DEFINE_list("problem", [], "Names of the problems to generate, separated by commas.")
    flags.DEFINE_string("data_dir", "", "Directory for the vocabulary and the shards.")
    flags.DEFINE_string(
        "tmp_dir",
        "/tmp/t2t_datagen",
        "Directory of the source files; absent ones are fetched there.",
    )
    flags.DEFINE_string("t2t_usr_dir", "", "Directory of Python modules with your own problems.")
    flags.DEFINE_integer("random_seed", 429459, "Seed of the order of the examples.")


def main(rest: list[str]) -> None:
    """Generates each problem and prints what lies in the data directory afterwards."""
    from t2t_keras import registry

    if rest:
        raise UserError(f"unexpected argument {rest[0]!r}: every setting is a flag, see --help.")
    if FLAGS.t2t_usr_dir:
        registry.import_user_directory(FLAGS.t2t_usr_dir)
    if not FLAGS.problem:
        names = ", ".join(registry.list_problems())
        raise UserError(f"--problem is missing: name one or more of {names}.")
    if not FLAGS.data_dir:
        raise UserError("--data_dir is missing: name the directory to write to.")
    problems = [registry.problem(name) for name in FLAGS.problem]
    data_dir = os.path.expanduser(FLAGS.data_dir)
    tmp_dir = os.path.expanduser(FLAGS.tmp_dir)
    for flag, directory in (("data_dir", data_dir), ("tmp_dir", tmp_dir)):
        make_directory(flag, directory)
    require_writable("data_dir", data_dir)
    for problem in problems:
        generate(problem, data_dir, tmp_dir, FLAGS.random_seed)


def generate(problem: Problem, data_dir: str, tmp_dir: str, seed: int) -> None:
    """Generates one problem and prints its vocabulary and shards."""
    import random

    import numpy as np

    print(f"{problem.name}: {tmp_dir} -> {data_dir}", flush=True)
    random.seed(seed)  # for generators that draw from them, as T2T does
    np.random.seed(seed % 2**32)
    problem.random_seed = seed
    problem.generate_data(data_dir, tmp_dir)
    for line in describe(problem, data_dir):
        print(line, flush=True)


def describe(problem: Problem, data_dir: str) -> list[str]:
    """Returns a line for the vocabulary and one for each split that lie in `data_dir`."""
    from t2t_keras.data.shards import count_examples, find_shards

    size = problem.get_feature_encoders(data_dir)["targets"].vocab_size
    lines = [f"  vocabulary: {size} tokens in {problem.vocab_filename or 'no file'}"]
    for split in (item["split"] for item in problem.dataset_splits):
        paths = find_shards(data_dir, problem.dataset_filename(), split)
        more = f" to {paths[-1].name[-14:]}" if len(paths) > 1 else ""
        lines.append(f"  {split}: {count_examples(paths)} examples in {paths[0].name}{more}")
    return lines


def make_directory(flag: str, directory: str) -> None:
    """Makes a directory that a flag names, and checks that it can be written to.

    Raises:
        UserError: it cannot be made or written to.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--{flag}={directory} cannot be made ({error.strerror}): name another directory."
        ) from error


def require_writable(flag: str, directory: str) -> None:
    """Checks that a directory can be written to.

    Raises:
        UserError: it cannot.
    """
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"--{flag}={directory} is not writable: name another directory.")


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
