"""T2T's commands, which take its command lines, and their `main` for scripts of users."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

from t2t_keras.cli import app, options
from t2t_keras.errors import warn
from t2t_keras.t2t_modules import load

FLAGS: Any = options.FLAGS
flags = SimpleNamespace(**vars(options.flags))
main = SimpleNamespace(
    of_module=lambda path: __getattr__(path.removeprefix("bin.")),
    define_flags_of=lambda path: app.define_for_scripts(partial(_define_flags, path[8:])),
)
_OURS = {"decoder": "decode", "exporter": "export", "query_server": "query", "trainer": "train"}


def __getattr__(name: str) -> Any:  # a command, such as `t2t_trainer`
    if (command := name[4:]) not in (*_OURS, "avg_all", "bleu", "datagen", "translate_all"):
        raise AttributeError(name)
    own = {"avg_all": _avg_all, "translate_all": _translate_all}.get(command)
    runs = own or load(f"cli.{_OURS.get(command, command)}").main
    if command in ("decoder", "exporter", "translate_all"):
        runs = wraps(runs)(partial(_on_trained_model, runs))
    return partial(app.command(partial(_define_flags, command), runs), lenient=True)


def _define_flags(command: str) -> None:
    if command == "avg_all":
        options.string("output_dir", "Directory of the averages.", default="avg")
        options.positive("n", 8, "Number of checkpoints in an average.")
    elif command == "translate_all":
        load("cli.decode").define_flags()
        options.string("source", "Text to translate, one sentence per line.")
        options.string("translations_dir", "Directory of the translations.", default="translations")
        options.positive("beam_size", 4, "Number of hypotheses in the search.")
        options.number("alpha", 0.6, "Strength of the length penalty.")
    else:
        return load(f"cli.{_OURS.get(command, command)}").define_flags()
    options.string("model_dir", "Directory of checkpoints.")
    options.integer("min_steps", 0, "Skip checkpoints of fewer steps.")
    options.number("wait_minutes", 0, "Minutes to wait for another checkpoint.")


def _checkpoints(folder: str, flags_file: str) -> Iterator[str]:
    """Yields the checkpoints in --model_dir by step; copies T2T's flags.txt to a folder."""
    run = options.required("model_dir")
    options.import_tensorflow()
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(source := os.path.join(run, "flags.txt")):
        shutil.copy2(source, os.path.join(folder, flags_file))
    yield from load("cli.eval").checkpoints_of_run(run, FLAGS.min_steps, FLAGS.wait_minutes)


def _avg_all() -> None:
    """Averages the last n checkpoints at every checkpoint from the n-th on."""
    folder, last = options.required("output_dir").rstrip("/"), list[str]()
    for prefix in _checkpoints(folder, "flags.txt"):
        last = [*last, prefix][-FLAGS.n :]
        if len(last) == FLAGS.n:
            load("checkpoints").average(last, mean := f"{folder}/{os.path.basename(prefix)}")
            print(f"wrote the mean of {FLAGS.n} checkpoints to {mean}", flush=True)
    if len(last) < FLAGS.n:
        warn(f"{FLAGS.model_dir} has {len(last)} checkpoints, fewer than --n={FLAGS.n}")


def _translate_all() -> None:
    """Translates a file with every checkpoint that has not translated it."""
    problem, folder = options.required("problem"), options.required("translations_dir")
    FLAGS.decode_from_file = options.required("source")
    FLAGS.decode_hparams = f"beam_size={FLAGS.beam_size},alpha={FLAGS.alpha},{FLAGS.decode_hparams}"
    for FLAGS.checkpoint_path in _checkpoints(folder, f"{problem}-flags.txt"):
        name = os.path.basename(FLAGS.checkpoint_path).rpartition("-")[2]
        FLAGS.decode_to_file = f"{folder}/{problem}-{name}"
        if os.path.exists(FLAGS.decode_to_file):
            warn(f"{FLAGS.decode_to_file} exists and is kept: remove it to translate again")
        else:
            load("cli.decode").main()


def _on_trained_model(runs: Callable[[], None]) -> None:
    """Runs a command with the settings beside a checkpoint instead of --hparams_set, as T2T does."""
    given = FLAGS.hparams_set, FLAGS.hparams, FLAGS.decode_hparams
    items = load("settings").split_items(FLAGS.hparams or "")
    sampling = [item for item in items if item.strip().startswith("sampling_")]  # T2T's hparams
    FLAGS.hparams = ",".join(item for item in items if item not in sampling) or None
    FLAGS.decode_hparams = ",".join([*sampling, *filter(None, [FLAGS.decode_hparams])])
    path = os.path.expanduser(FLAGS.checkpoint_path or FLAGS.model_dir or FLAGS.output_dir or "")
    folders = path if os.path.isdir(path) else os.path.dirname(path), FLAGS.output_dir or path
    recorded = (os.path.join(os.path.expanduser(each), "hparams.json") for each in folders)
    if found := next(filter(os.path.exists, recorded), None):
        if FLAGS.hparams:
            options.warn_unused(f"{found} has the settings", "hparams")
        FLAGS.hparams_set = FLAGS.hparams = None
        if options.decode_settings().beam_size == 1:  # T2T's beam search does not sample
            theirs = load("files").read_json(found)
            sampling = [f"{n}={value}" for n, value in theirs.items() if n.startswith("sampling_")]
            FLAGS.decode_hparams = ",".join([*sampling, FLAGS.decode_hparams])
    runs()
    FLAGS.hparams_set, FLAGS.hparams, FLAGS.decode_hparams = given
