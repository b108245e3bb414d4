"""`t2t-keras-convert`: converts between tensor2tensor's checkpoints and .keras files.

Examples:
    t2t-keras-convert --checkpoint_path=run --output_path=model.keras
    t2t-keras-convert --checkpoint_path=my.keras --output_path=mine/model.ckpt-0
"""

import os

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, string
from t2t_keras.errors import UserError, explained
from t2t_keras.files import atomic_write, locked_directory, locked_name, writing


def define_flags() -> None:
    options.define("target_space_id", *options.MODEL)
    string("checkpoint_path", "Checkpoint, its directory, or .keras file to convert.")
    string("output_path", "Output: a name that ends in .keras, or a checkpoint's prefix.")


def main() -> None:
    """Reads one format, checks that every variable matches, and writes the other."""
    source, target = options.required("checkpoint_path"), options.required("output_path")
    if source.endswith(".keras") == target.endswith(".keras"):
        raise UserError("convert a checkpoint to a .keras file, or a .keras file to a checkpoint.")
    if source.endswith(".keras"):
        options.prefix_to_write("output_path")
    options.load_user_directory()
    given, space = options.hparams(needed=False), FLAGS.target_space_id
    options.import_tensorflow()

    from t2t_keras import checkpoints

    if target.endswith(".keras"):
        model = checkpoints.load_model(source, given, space, FLAGS.model)
        save_keras(model, target)
    else:
        if given is not None or space is not None or FLAGS.model:
            raise UserError(
                "a .keras file contains its own settings: leave out --hparams, --model and "
                "--target_space_id."
            )
        model = load_keras(source)
        save_checkpoint(model, target)
    print(f"{model.count_params():,} parameters written to {target}")


def save_checkpoint(model, prefix: str) -> None:
    """Writes a T2T checkpoint with its settings; its step is taken from its name."""
    import numpy as np

    from t2t_keras import checkpoints
    from t2t_keras.checkpoints import run_directory
    from t2t_keras.checkpoints.t2t import checkpoints_in, step_in_name

    directory = os.path.dirname(prefix) or "."
    if os.path.isdir(directory):
        run = run_directory.read_settings(directory)[1]
        # Another conversion has a `run.json` without starts.
        if run.get(run_directory.STARTS) or (not run and checkpoints_in(directory)):
            run_directory.refuse_run_checkpoint(prefix)
    step = np.asarray(step_in_name(prefix), np.int64)  # T2T's Estimator restores it
    settings = directory, model.hp, run_directory.describe(model)
    with writing(directory):
        os.makedirs(directory, exist_ok=True)
        with locked_directory(directory, lambda: run_directory.require_same_settings(*settings)):
            # First, because this rejects the directory of another run.
            checkpoints.write_settings(*settings)
            checkpoints.save_t2t(model, prefix, {"global_step": step})


def save_keras(model, path: str) -> None:
    lock = locked_name(path)
    with writing(path), lock, atomic_write(path, suffix=".keras", locked=True) as partial:
        model.save(partial)


def load_keras(path: str):
    """Loads a `Transformer` from a `.keras` file."""
    import keras

    from t2t_keras import Transformer  # with all that its file may name

    with explained(f"{path} cannot be read", Exception):  # whatever Keras raises for a damaged file
        model = keras.models.load_model(path, compile=False)
    if not isinstance(model, Transformer):
        raise UserError(f"{path} contains a {type(model).__name__}, not a Transformer.")
    return model


run = app.command(define_flags, main, required=["checkpoint_path", "output_path"])

if __name__ == "__main__":
    run()
