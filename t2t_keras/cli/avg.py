"""`t2t-keras-avg`: averages checkpoints, of our runs or tensor2tensor's."""

from __future__ import annotations

import os

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the command: those of T2T's `avg_checkpoints`."""
    flags.DEFINE_list("checkpoints", [], "The checkpoints to average, separated by commas.")
    flags.DEFINE_integer(
        "num_last_checkpoints", 0, "Average so many of the newest with --prefix.", lower_bound=0
    )
    flags.DEFINE_string("prefix", "", "A directory, or what stands before the names, or both.")
    flags.DEFINE_string("output_path", "/tmp/averaged.ckpt", "Prefix of the result.")


def main(arguments: list[str]) -> None:
    """Averages and says what."""
    options.reject_arguments(arguments)
    if bool(FLAGS.checkpoints) == bool(FLAGS.num_last_checkpoints):
        raise UserError("give either --checkpoints=A,B,... or --num_last_checkpoints=N.")
    prefix, output = options.directory("prefix") or "", options.required("output_path")

    from t2t_keras import checkpoints

    if FLAGS.checkpoints:
        paths = [
            os.path.join(prefix, name) if os.path.isdir(prefix) else prefix + name
            for name in FLAGS.checkpoints
        ]
        paths = [checkpoints.resolve(path) for path in paths]
    else:
        if not prefix:
            raise UserError("--num_last_checkpoints needs --prefix=DIRECTORY.")
        paths = checkpoints.last_checkpoints(prefix, FLAGS.num_last_checkpoints)
    checkpoints.average(paths, output)
    print(f"the mean of {', '.join(paths)} is in {output}")


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
