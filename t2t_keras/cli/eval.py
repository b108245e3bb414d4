"""`t2t-keras-eval`: evaluates one checkpoint, or all of a run: loss, accuracy, perplexity, BLEU or F1.

Example:
    t2t-keras-eval --output_dir=run

Give --output_dir or --checkpoint_path. One of tensor2tensor may need --problem, --data_dir and --hparams_set.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.cli import app, options
from t2t_keras.cli.options import FLAGS, integer, number, string, switch
from t2t_keras.errors import UserError, warn
from t2t_keras.model_kinds import TRANSLATION


def define_flags() -> None:
    options.define("problem", "data_dir", "target_space_id", *options.MODEL)
    options.define_search()
    options.define_generation()
    string("output_dir", "Directory of a run; evaluates all its checkpoints.")
    string("checkpoint_path", "A single checkpoint to evaluate, such as DIR/model.ckpt-100.")
    integer("eval_steps", 100, "Batches per evaluation; 0: all.")
    switch("eval_use_test_set", "Evaluate on test instead of dev.")
    integer("min_steps", 0, "With --output_dir: skip checkpoints of fewer steps.")
    number("eval_timeout_mins", 0.0, "With --output_dir: minutes to wait for another checkpoint.")


def main() -> None:
    """Evaluates each checkpoint that can be read; prints a line each and writes scalars for TensorBoard."""
    given = options.directory("checkpoint_path")
    directory = "" if given else options.required("output_dir")
    if given and (FLAGS.min_steps or FLAGS.eval_timeout_mins or FLAGS.output_dir):
        raise UserError(
            "--checkpoint_path names one checkpoint: leave out --output_dir, --min_steps and "
            "--eval_timeout_mins, which are for a whole run."
        )
    if not FLAGS.eval_timeout_mins:
        options.require_trained_model()
    options.import_tensorflow()

    from t2t_keras import checkpoints

    prefixes = checkpoints_of_run(directory, FLAGS.min_steps, FLAGS.eval_timeout_mins)
    evaluate, any_done = None, False
    for prefix in [checkpoints.resolve(given)] if given else prefixes:
        try:
            evaluate = evaluate or evaluation(prefix)
            evaluate(prefix)
            any_done = True
        except UserError as error:  # the training run may have removed it by now
            if given or checkpoints.is_whole(prefix):
                raise
            warn(f"{error} It is skipped.")
    if not any_done:
        least = f" of {FLAGS.min_steps} or more steps" if FLAGS.min_steps else ""
        raise UserError(f"{directory} has no checkpoint{least} that can be read.")


def evaluation(first: str) -> Callable[[str], None]:
    """Returns what evaluates checkpoints of the model of the first, on the same batches."""
    from t2t_keras import checkpoints, data
    from t2t_keras.data.on_the_fly import TextBatches
    from t2t_keras.data.reading import plain_errors
    from t2t_keras.training import Evaluation
    from t2t_keras.training.reporting import EventLog

    settings = options.decode_settings()
    loaded = options.trained_model(first)
    model, problem = loaded.model, loaded.problem
    if problem.kind != TRANSLATION or problem.packed_length:
        options.warn_unused("only translations are decoded, unless packed", "decode_hparams", "xla")
    split = "test" if FLAGS.eval_use_test_set else "dev"
    hp = options.hparams(needed=False) or model.hp
    shards = Path(loaded.data_dir).glob(f"{problem.dataset_filename()}-{split}-*-of-*")
    if loaded.runs[0].get("on_the_fly") and not any(shards):
        options.configure(problem)
        batches = TextBatches(problem, split, loaded.data_dir, options.tmp_dir(), hp).dataset()
    else:
        of_text = (*options.FILES, *options.TFDS, *options.VOCABULARY, "num_concurrent_processes")
        options.warn_unused("shards are read", "tmp_dir", "corpora", *of_text)
        batches = data.dataset(problem, split, loaded.data_dir, hp)
    evaluation = Evaluation(model, batches, loaded.encoders, settings, FLAGS.eval_steps, problem)
    log = EventLog(None)
    try:  # under the name that training writes to
        folder = "eval" if split == "dev" else f"eval_{split}"
        log = EventLog(os.path.join(os.path.dirname(first), folder))
    except UserError as error:
        warn(f"{error} There are no scalars for TensorBoard.")

    def evaluate(prefix: str) -> None:
        step = checkpoints.load_t2t(model, prefix)
        with plain_errors():
            metrics = evaluation()
        print(f"step {step}: {split} {line(metrics)}", flush=True)
        log.write(step, metrics)
        log.flush()

    return evaluate


def line(metrics: dict[str, float]) -> str:
    """Returns the metrics of an evaluation as one line."""
    from t2t_keras.training.evaluation import format_metrics, perplexity

    words = f"loss {metrics['loss']:.4f}  accuracy {metrics['accuracy']:.4f}"
    if "perplexity" not in metrics:
        words += f"  perplexity {perplexity(metrics['loss']):.4f}"
    return words + format_metrics(metrics)


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
            time.sleep(2)
        else:
            return


run = app.command(define_flags, main)

if __name__ == "__main__":
    run()
