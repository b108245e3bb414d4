"""`t2t-keras-avg`: averages checkpoints of t2t_keras or tensor2tensor.

Examples:
    t2t-keras-avg --prefix=run --num_last_checkpoints=5 --output_path=mean.ckpt
    t2t-keras-avg --checkpoints=run/model.ckpt-900,run/model.ckpt-1000
"""

import operator
import os

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, integer, number, string, strings
from t2t_keras.errors import UserError


def define_flags() -> None:
    strings("checkpoints", "The checkpoints to average, separated by commas.")
    integer("num_last_checkpoints", 0, "Average so many newest checkpoints of --prefix; 0: all.")
    integer("min_steps", 0, "Skip checkpoints of fewer steps.")
    integer("max_steps", 0, "Skip checkpoints of more steps; 0: no limit.")
    number("minutes", 0.0, "Minimum minutes between two checkpoints.")
    string("prefix", "Directory of checkpoints, common prefix of names, or both.")
    string("output_path", "Prefix of the averaged checkpoint.", default="/tmp/averaged.ckpt")


def main() -> None:
    limits = {name: getattr(FLAGS, name) for name in ("min_steps", "max_steps", "minutes")}
    chosen_by = options.given("num_last_checkpoints", *limits)
    if bool(FLAGS.checkpoints) == bool(chosen_by):
        raise UserError(
            "give --checkpoints=A,B,... or --num_last_checkpoints=N or limits (--min_steps, --max_steps, "
            f"--minutes), got {f'both --checkpoints and {chosen_by[0]}' if chosen_by else 'none'}."
        )
    prefix, output = options.directory("prefix") or "", options.prefix_to_write("output_path")
    if chosen_by and not prefix:
        raise UserError(f"{chosen_by[0]} needs --prefix=DIRECTORY.")
    options.import_tensorflow()

    from t2t_keras import checkpoints

    if FLAGS.checkpoints:
        names = [name.strip() for name in FLAGS.checkpoints]
        if not all(names):
            raise UserError(f"--checkpoints={','.join(FLAGS.checkpoints)} has an empty name.")
        join = os.path.join if os.path.isdir(prefix) else operator.add
        paths = [checkpoints.resolve(os.path.expanduser(join(prefix, name))) for name in names]
    else:
        paths = checkpoints.last_checkpoints(prefix, FLAGS.num_last_checkpoints, **limits)
    step = checkpoints.average(paths, output)
    print(f"wrote the mean of {', '.join(paths)} to {output}, at step {step}")


run = app.command(define_flags, main)

if __name__ == "__main__":
    run()
