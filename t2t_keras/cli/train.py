"""`t2t-keras-train`: trains a problem with a set of hyperparameters."""

from __future__ import annotations

import os

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the command: T2T's, as far as they apply."""
    options.define_problem()
    options.define_hparams()
    options.define_decode_hparams()
    options.define_translate_files()
    flags.DEFINE_string("output_dir", None, "Directory of the run; a run that is there goes on.")
    flags.DEFINE_string("tmp_dir", "/tmp/t2t_datagen", "Where source files are, or are put.")
    flags.DEFINE_bool("generate_data", False, "Generate the data first, if it is not there.")
    flags.DEFINE_bool("on_the_fly", False, "Read the text in --tmp_dir itself: no shards needed.")
    flags.DEFINE_integer("train_steps", 250000, "Steps of the whole run.", lower_bound=0)
    flags.DEFINE_integer("eval_steps", 100, "Batches of an evaluation; 0: all.", lower_bound=0)
    flags.DEFINE_integer(
        "local_eval_frequency", 1000, "Steps between evaluations and checkpoints.", lower_bound=1
    )
    flags.DEFINE_integer(
        "save_checkpoints_secs", 0, "Also save whenever so many seconds passed.", lower_bound=0
    )
    flags.DEFINE_integer("keep_checkpoint_max", 20, "Checkpoints kept; 0: all.", lower_bound=0)
    flags.DEFINE_integer("random_seed", 0, "Of weights, data order and dropout.")
    flags.DEFINE_enum(
        "xla", "auto", ["auto", "on", "off"], "Compile with XLA; auto: where there is a GPU."
    )


def main(arguments: list[str]) -> None:
    """Trains from the newest checkpoint of the directory, or from the start."""
    options.reject_arguments(arguments)
    data_dir, output_dir = options.required("data_dir"), options.required("output_dir")
    problem = options.problem()
    options.configure(problem)
    hp = options.hparams()
    if FLAGS.on_the_fly and FLAGS.generate_data:
        raise UserError("--on_the_fly needs no generated data: leave out it or --generate_data.")

    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.training import Trainer, TrainSettings

    settings = TrainSettings(
        train_steps=FLAGS.train_steps,
        local_eval_frequency=FLAGS.local_eval_frequency,
        eval_steps=FLAGS.eval_steps,
        save_checkpoints_secs=FLAGS.save_checkpoints_secs,
        keep_checkpoint_max=FLAGS.keep_checkpoint_max,
        random_seed=FLAGS.random_seed,
        xla={"auto": None, "on": True, "off": False}[FLAGS.xla],
        decode=DecodeSettings.parse(FLAGS.decode_hparams),
    )
    if FLAGS.generate_data:
        problem.generate_data(data_dir, FLAGS.tmp_dir)
    tmp_dir = os.path.expanduser(FLAGS.tmp_dir) if FLAGS.on_the_fly else None
    trainer = Trainer(problem, hp, data_dir, output_dir, settings, tmp_dir)
    parameters = trainer.model.count_params()
    print(f"problem {problem.name}, hparams {hp.set_name}, {parameters:,} parameters", flush=True)
    print(trainer.batches.description(), flush=True)
    figures = trainer.run()
    print("dev " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
