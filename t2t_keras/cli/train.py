"""`t2t-keras-train`: trains a problem with a set of hyperparameters.

Examples:
    t2t-keras-train --problem=translate_ende_numbers --data_dir=data \\
        --hparams=transformer_numbers --output_dir=run --generate_data
    t2t-keras-train --list  # problems, hparams sets and models

The same command resumes a run that was stopped, and so does --output_dir alone, also with more --train_steps.
"""

import itertools
import os
import re
import shlex
import sys
from typing import Any

from t2t_keras import registry
from t2t_keras.cli import app, datagen, options
from t2t_keras.cli.options import FLAGS, choice, integer, number, positive, string, switch, topic
from t2t_keras.errors import UserError, explained
from t2t_keras.model_kinds import TRANSLATION


def define_flags() -> None:
    options.define("problem", "data_dir", *options.MODEL)
    with topic("Training:"):
        string("output_dir", "Directory of the run; resumes an existing run.")
        integer("train_steps", 250000, "Total number of steps of the run.")
        switch("generate_data", "Generate the data first, unless it exists.")
        switch("on_the_fly", "Read the text in --tmp_dir directly, without shards.")
        string("warm_start_from", "Checkpoint that initialises the weights of a new run.")
        string("warm_start_vocab", "Directory of its vocabulary; default: that of its training.")
        string("freeze", "Regular expression for names of weights not to train.", default="")
        number("ema", 0.0, "Decay of averaged weights, for all but avg; 0: none.", upper_bound=1)
        options.seed(0, "Seed for weights, data order and dropout.")
    with topic("Evaluation and stopping:"):
        positive("local_eval_frequency", 1000, "Steps between evaluations and checkpoints.")
        integer("eval_steps", 100, "Batches per evaluation; 0: all.")
        metrics = ["loss", "accuracy", "bleu", "f1"]
        choice("best_metric", "loss", metrics, "Dev metric that selects the best checkpoint.")
        positive("eval_early_stopping_steps", None, "Stop after so many steps without improvement.")
        choice("eval_early_stopping_metric", "loss", metrics, "Dev metric that must improve.")
        number("eval_early_stopping_metric_delta", 0.1, "Smallest improvement that counts.")
        least = "eval_early_stopping_metric_minimize"
        switch(least, "Lower is better; default: for loss only.", None)
        positive("log_step_count_steps", 100, "Steps between points in TensorBoard.")
        switch("attention_images", "At each evaluation, write a page of a sentence's attention.")
    with topic("Checkpoints:"):
        integer("save_checkpoints_secs", 0, "Also save a checkpoint every N seconds; 0: never.")
        integer("keep_checkpoint_max", 20, "Number of newest checkpoints to keep; 0: all.")
        number("keep_checkpoint_every_n_hours", 0.0, "Keep one every N hours for good; 0: none.")
    with topic("Devices, speed and memory:"):
        kinds = ["auto", "none", "mirrored", "multi_worker"]
        devices = "none: one; mirrored: all of this host; multi_worker: of all hosts in TF_CONFIG."
        choice("distribute", "auto", kinds, f"Devices; {devices}")
        precision = "Type of activations; default: the hparam activation_dtype."
        choice("precision", None, ["float32", "bfloat16", "float16"], precision)
        choice("xla", "auto", ["auto", "on", "off"], "Compile with XLA; auto: if there is a GPU.")
        switch("compile_ahead", "Compile for all batch shapes before the first step.")
        switch("remat", "Gradient checkpointing: recompute activations to save memory.")
    options.define_decode_hparams()
    options.define_generation()


def main() -> None:
    """Trains, from the newest checkpoint in the directory if there is one."""
    compiles = FLAGS.xla == "on" or (FLAGS.xla == "auto" and os.path.exists("/dev/nvidia0"))
    if compiles and FLAGS.output_dir:
        _keep_compiled(options.required("output_dir"))
    recorded = _take_from_record() if FLAGS.output_dir else None
    _warn_unused(is_new=recorded is None)
    if FLAGS.problem and not FLAGS.data_dir:
        raise UserError(
            "--data_dir is missing: give --output_dir, and the directory that "
            f"t2t-keras-datagen --problem={FLAGS.problem} --data_dir=DIR fills first."
        )
    data_dir, output_dir = options.required("data_dir"), options.required("output_dir")
    problem = options.problem()
    options.configure(problem)
    hp: Any = options.hparams(needed=recorded is None) or recorded
    _reject_contradictions(problem, hp)
    if problem.kind != TRANSLATION or problem.packed_length:
        options.warn_unused("only translations are decoded, unless packed", "decode_hparams")
    if not FLAGS.generate_data and not FLAGS.on_the_fly:
        from t2t_keras.data.shards import find_shards

        find_shards(data_dir, problem.dataset_filename(), "train")
    options.import_tensorflow()
    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.inspection import batch_page
    from t2t_keras.training import EarlyStopping, EngineSettings, Trainer, TrainSettings
    from t2t_keras.training.engine import distribution

    distribution(FLAGS.distribute)  # connects the hosts, before TensorFlow's first operation
    xla = {"auto": None, "on": True, "off": False}[FLAGS.xla]
    paths: Any = {name: options.directory(name) for name in ("warm_start_from", "warm_start_vocab")}
    settings = options.from_flags(
        TrainSettings,
        model=FLAGS.model or "transformer",
        early_stopping=EarlyStopping(
            steps=FLAGS.eval_early_stopping_steps,
            metric=FLAGS.eval_early_stopping_metric,
            delta=FLAGS.eval_early_stopping_metric_delta,
            minimize=FLAGS.eval_early_stopping_metric_minimize,
        ),
        **paths,
        attention_page=batch_page if FLAGS.attention_images else None,
        engine=options.from_flags(EngineSettings, xla=xla),
        decode=DecodeSettings.parse(FLAGS.decode_hparams),
    )
    registry.require_fit(problem, registry.model(settings.model))  # before data is generated
    if FLAGS.generate_data:
        problem.processes = options.processes()
        datagen.generate(problem, data_dir, options.tmp_dir())
    source = options.tmp_dir() if FLAGS.on_the_fly else None
    sys.argv[1:] = FLAGS.read_flags_from_files(sys.argv[1:])  # to be recorded
    paths |= {"tmp_dir": source}
    sys.argv += [f"--{name}={os.path.abspath(path)}" for name, path in paths.items() if path]
    trainer = Trainer(problem, hp, data_dir, output_dir, settings, source).prepare()
    parameters = trainer.model.count_params()
    if trainer.engine.is_chief:
        print(f"problem {problem.name}, hparams {hp.set_name}, {parameters:,} parameters")
        print("\n".join(trainer.description()), flush=True)
    metrics = trainer.run()
    if metrics and trainer.engine.is_chief:
        print("dev " + "  ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


# With --output_dir alone, these flags have the values that earlier starts of the run gave them.
_KEPT = """train_steps local_eval_frequency eval_steps best_metric decode_hparams ema freeze random_seed precision
eval_early_stopping_steps eval_early_stopping_metric eval_early_stopping_metric_delta on_the_fly tmp_dir remat
eval_early_stopping_metric_minimize keep_checkpoint_max keep_checkpoint_every_n_hours save_checkpoints_secs
log_step_count_steps attention_images warm_start_from warm_start_vocab"""


def _take_from_record():
    """Takes data, model and `_KEPT` of a run that is continued, unless given; returns its settings, if any."""
    directory = options.required("output_dir")
    if FLAGS.problem and FLAGS.data_dir and (FLAGS.hparams or FLAGS.hparams_set):
        return None
    if not os.path.exists(os.path.join(directory, "run.json")):
        return None
    options.import_tensorflow()
    from t2t_keras.checkpoints import read_settings

    recorded, run = read_settings(directory)
    run["data_dir"] = (run.get("starts") or [{}])[-1].get("data_dir")
    for name in ("problem", "model", "data_dir"):
        FLAGS[name].value = FLAGS[name].value or run.get(name)
    for start in reversed(run.get("starts", [])):
        with explained(f"{directory}/run.json: a command cannot be read", ValueError):
            words = shlex.split(start.get("command", ""))
        words = [re.sub(r"^--?no(\w+)$", r"--\1=false", word) for word in words]
        for word, after in reversed([*itertools.pairwise([*words, ""])]):  # the last one counts
            name, equals, value = word.lstrip("-").partition("=")
            if word.startswith("-") and name in _KEPT.split() and not FLAGS[name].present:
                FLAGS[name].parse(value if equals else "true" if FLAGS[name].boolean else after)
        given = {word.lstrip("-").partition("=")[0] for word in words}
        if {"problem", "data_dir"} <= given and given & {"hparams", "hparams_set"}:
            break  # a whole command, which took nothing from earlier starts
    return recorded


def _reject_contradictions(problem, hp) -> None:
    if FLAGS.on_the_fly and FLAGS.generate_data:
        raise UserError(
            "--on_the_fly reads text, not generated data: leave out --on_the_fly or --generate_data."
        )
    if FLAGS.attention_images and problem.kind != TRANSLATION:
        raise UserError(f"--attention_images needs pairs of texts: {problem.name} has none.")
    if FLAGS.attention_images and hp.prepend_mode != "none":
        raise UserError(f"--attention_images needs prepend_mode=none, got {hp.prepend_mode}.")


def _warn_unused(is_new: bool) -> None:
    if not FLAGS.generate_data:
        options.warn_unused("it needs --generate_data", "num_concurrent_processes")
    if is_new and (FLAGS.train_files or FLAGS.corpora):
        options.warn_unused("the files have paths of their own", "tmp_dir")
    elif is_new and not (FLAGS.generate_data or FLAGS.on_the_fly):
        options.warn_unused("it needs --generate_data or --on_the_fly", "tmp_dir")
    if not FLAGS.warm_start_from:
        options.warn_unused("it needs --warm_start_from", "warm_start_vocab")
    if not FLAGS.eval_early_stopping_steps:
        names = [f"eval_early_stopping_metric{end}" for end in ("", "_delta", "_minimize")]
        options.warn_unused("early stopping needs --eval_early_stopping_steps", *names)
    if not FLAGS.keep_checkpoint_max:
        options.warn_unused("all checkpoints are kept", "keep_checkpoint_every_n_hours")


def _keep_compiled(output_dir: str) -> None:
    """Makes XLA cache its programs beside the run; TensorFlow reads the variable when imported."""
    given = os.environ.get("TF_XLA_FLAGS", "")
    if "persistent_cache_directory" not in given:
        cache = os.path.join(os.path.abspath(output_dir), "xla_cache")
        # TensorFlow cuts a value at blanks unless it is quoted.
        quoted = re.sub(r'(["\\])', r"\\\1", cache)
        flag = f'--tf_xla_persistent_cache_directory="{quoted}"'
        os.environ["TF_XLA_FLAGS"] = f"{given} {flag}".strip()


run = app.command(define_flags, main, required=["problem", "hparams", "data_dir", "output_dir"])

if __name__ == "__main__":
    run()
