"""`t2t-keras-eval`: evaluates one checkpoint, or all of a run: loss, accuracy, perplexity, BLEU or F1.

Example:
    t2t-keras-eval --output_dir=run

Give --output_dir or --checkpoint_path. A checkpoint of tensor2tensor may need --problem, --data_dir and
--hparams_set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from absl import flags

from t2t_keras.cli import app, options
from t2t_keras.errors import UserError

FLAGS = flags.FLAGS

_SECONDS_TO_SLEEP = 2.0


def define_flags() -> None:
    """Defines the flags of the command, T2T's as far as they apply."""
    options.define_problem()
    options.define_model()
    options.define_hparams()
    options.define_search()
    flags.DEFINE_string("output_dir", None, "Directory of a run; evaluates all its checkpoints.")
    flags.DEFINE_string(
        "checkpoint_path", None, "A single checkpoint to evaluate, such as DIR/model.ckpt-100."
    )
    flags.DEFINE_integer("eval_steps", 100, "Batches per evaluation; 0: all.", lower_bound=0)
    flags.DEFINE_bool("eval_use_test_set", False, "Evaluate on test instead of dev.")
    flags.DEFINE_integer(
        "min_steps", 0, "With --output_dir: skip checkpoints of fewer steps.", lower_bound=0
    )
    flags.DEFINE_float(
        "eval_timeout_mins",
        0.0,
        "With --output_dir: minutes to wait for another checkpoint.",
        lower_bound=0.0,
    )


def main(arguments: list[str]) -> None:
    """Evaluates each checkpoint; prints one line each and writes scalars for TensorBoard."""
    options.reject_arguments(arguments)
    given = options.directory("checkpoint_path")
    directory = "" if given else options.required("output_dir")
    if given and (FLAGS.min_steps or FLAGS.eval_timeout_mins or FLAGS.output_dir):
        raise UserError(
            "--checkpoint_path names one checkpoint: leave out --output_dir, --min_steps and "
            "--eval_timeout_mins, which are for a whole run."
        )
    options.import_tensorflow()

    from t2t_keras import checkpoints

    if given:
        prefixes = iter([checkpoints.resolve(given)])
    else:
        prefixes = readable(checkpoints_of_run(directory, FLAGS.min_steps, FLAGS.eval_timeout_mins))
    evaluate = None
    for prefix in prefixes:
        evaluate = evaluate or CheckpointEvaluation(prefix)
        evaluate(prefix)
    if evaluate is None:
        least = f" of {FLAGS.min_steps} or more steps" if FLAGS.min_steps else ""
        raise UserError(f"{directory} has no checkpoint{least} that can be read.")


class CheckpointEvaluation:
    """Evaluates checkpoints of one model on the same batches.

    Args:
        prefix: the prefix of the first checkpoint; its directory records the problem and settings.
    """

    def __init__(self, prefix: str):
        from t2t_keras import data
        from t2t_keras.training import Evaluation

        settings = options.decode_settings()
        loaded = options.trained_model(prefix)
        self.model, problem = loaded.model, loaded.problem
        self.split = "test" if FLAGS.eval_use_test_set else "dev"
        hp = options.hparams(needed=False) or self.model.hp
        batches = data.dataset(problem, self.split, loaded.data_dir, hp)
        self.evaluation = Evaluation(
            self.model, batches, loaded.encoders, settings, FLAGS.eval_steps, problem
        )
        self.log = log_of(os.path.dirname(prefix), self.split)

    def __call__(self, prefix: str) -> None:
        """Evaluates a checkpoint, prints its line and writes its scalars."""
        from t2t_keras import checkpoints
        from t2t_keras.data.reading import plain_errors

        step = checkpoints.load_t2t(self.model, prefix)
        with plain_errors():
            figures = self.evaluation()
        print(f"step {step}: {self.split} {line(figures)}", flush=True)
        if self.log:
            self.log.write(step, figures)
            self.log.flush()


def line(figures: dict[str, float]) -> str:
    """Returns the metrics of an evaluation as one line."""
    from t2t_keras.training.evaluation import in_words, perplexity

    words = f"loss {figures['loss']:.4f}  accuracy {figures['accuracy']:.4f}"
    if "perplexity" not in figures:
        words += f"  perplexity {perplexity(figures['loss']):.4f}"
    return words + in_words(figures)


def log_of(directory: str, split: str):
    """Opens the event log: `eval` as in training, `eval_test` for test; None if it cannot be written."""
    from t2t_keras.decoding.translator import warn
    from t2t_keras.training.reporting import EventLog

    folder = os.path.join(directory, "eval" if split == "dev" else f"eval_{split}")
    try:
        return EventLog(folder)
    except UserError as error:
        warn(f"{error}: no scalars for TensorBoard")
        return None


def checkpoints_of_run(directory: str, min_steps: int, wait_minutes: float) -> Iterator[str]:
    """Yields each checkpoint of a run by step, then new ones until none appears for `wait_minutes`."""
    from t2t_keras import checkpoints
    from t2t_keras.checkpoints.t2t import checkpoints_in, step_in_name

    seen: set[str] = set()
    last = time.monotonic()
    while True:
        found = checkpoints_in(directory, "model.ckpt-") if os.path.isdir(directory) else []
        if not found and not wait_minutes:
            found = [checkpoints.resolve(directory)]  # e.g. an average without a step
        new = [p for p in found if p not in seen and step_in_name(p) >= min_steps]
        if new:
            seen.add(new[0])
            yield new[0]
            last = time.monotonic()
        elif time.monotonic() - last < wait_minutes * 60:
            time.sleep(_SECONDS_TO_SLEEP)
        else:
            return


def readable(prefixes: Iterator[str]) -> Iterator[str]:
    """Skips, with a warning, checkpoints that are damaged or have been deleted meanwhile."""
    from t2t_keras.checkpoints.t2t import require_whole
    from t2t_keras.decoding.translator import warn

    for prefix in prefixes:
        try:
            require_whole(prefix)
        except UserError as error:
            warn(f"{error}; skipping it")
        else:
            yield prefix


def run() -> None:
    """The console script."""
    define_flags()
    app.start(main)


if __name__ == "__main__":
    run()
