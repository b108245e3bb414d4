"""`t2t-keras-inspect`: what there is, before or after a training. `data`: what batches look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError, nearest

if TYPE_CHECKING:
    from t2t_keras.data import Problem
    from t2t_keras.data.index import SplitIndex

FLAGS = flags.FLAGS

_SUBJECTS = ("data",)


def define_flags() -> None:
    """Defines the flags of the command."""
    options.define_problem()
    options.define_hparams()
    flags.DEFINE_string("split", "train", "train, dev or test.")
    flags.DEFINE_integer("num_examples", 3, "Examples to show.", lower_bound=0)
    flags.DEFINE_integer("random_seed", 0, "Of the order of the data, as in a training.")
    flags.DEFINE_string("plot", None, "Also draw the lengths: a file such as lengths.png.")


def main(arguments: list[str]) -> None:
    """Prints what the subject, the first argument, looks like."""
    subject = arguments[0] if arguments else ""
    if subject not in _SUBJECTS:
        raise UserError(
            f"cannot inspect {subject!r}: write t2t-keras-inspect data --problem=..."
            f"{nearest(subject, _SUBJECTS)}"
        )
    options.reject_arguments(arguments[1:])
    data_dir, problem, hp = options.required("data_dir"), options.problem(), options.hparams()
    print(*_describe_data(problem, hp, data_dir), sep="\n")


def _describe_data(problem: Problem, hp, data_dir: str) -> list[str]:
    from t2t_keras import data
    from t2t_keras.data.generation.report import (
        describe_split,
        length_histogram,
        padding_table,
        read_counts,
    )
    from t2t_keras.data.index import read_index

    split, name = FLAGS.split, problem.dataset_filename()
    batches = data.Batches(problem, split, data_dir, hp, seed=FLAGS.random_seed)
    index = read_index(data_dir, name, split)
    lines = [
        f"problem {problem.name}, hparams {hp.set_name}",
        *describe_split(split, index, read_counts(data_dir, name, split)),
        batches.description(),
        *length_histogram(index.lengths),
        *padding_table(index.lengths, batches.buckets),
    ]
    if FLAGS.num_examples:
        lines += _examples(batches, problem.get_feature_encoders(data_dir), FLAGS.num_examples)
    if FLAGS.plot:
        _plot(index, problem.name, split, FLAGS.plot)
        lines.append(f"lengths: {FLAGS.plot}")
    return lines


def _examples(batches, encoders, number: int) -> list[str]:
    """The first examples of the first batch: their ids, and the text that these stand for."""
    batch = next(batches.dataset().as_numpy_iterator())
    shapes = ", ".join(f"{field} {list(ids.shape)}" for field, ids in batch.items())
    lines = [f"first batch: {shapes}"]
    for row in range(min(number, len(batch["inputs"]))):
        for side, encoder in encoders.items():
            ids = [int(i) for i in batch[side][row] if i]
            lines += [f"  {side}: {encoder.decode(ids)}", f"    {' '.join(map(str, ids))}"]
    return lines


def _plot(index: SplitIndex, name: str, split: str, path: str) -> None:
    """Draws how many pairs have which length, one line a side."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "--plot needs matplotlib, which is not installed: pip install t2t-keras[plot]."
        ) from error
    import numpy as np

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for side, lengths in index.lengths.items():
        pairs = np.bincount(lengths)
        axes.step(range(len(pairs)), pairs, where="mid", label=side)
    axes.set(title=f"{name}, {split}", xlabel="ids, end of sentence included", ylabel="pairs")
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--plot={path} cannot be written: {error}.") from error


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
