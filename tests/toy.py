"""A task that is learned in seconds: turn a row of letters round."""

import contextlib
import functools
import gc
import multiprocessing.forkserver
import os
import random
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from t2t_keras import registry
from t2t_keras.cli import t2t as commands

ROOT = Path(__file__).parents[1]
PROBLEM = "text2text_tmpdir"
SETTINGS = {
    "hidden_size": 64,
    "filter_size": 128,
    "batch_size": 512,
    "batch_shuffle_size": 16,
    "max_length": 16,
    "length_bucket_step": 2.0,
    "symbol_modality_num_shards": 4,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "layer_prepostprocess_dropout": 0.1,
    "learning_rate_constant": 1.0,
    "learning_rate_warmup_steps": 200,
}


def hparams(**changes):
    """The toy's settings as a command line gives them."""
    items = {**SETTINGS, **changes}.items()
    return ",".join(["transformer_tiny", *(f"{name}={value}" for name, value in items)])


def rows(count, seed):
    generator = random.Random(seed)
    lengths = (generator.randint(2, 7) for _ in range(count))
    return [" ".join(generator.choice("abcdefgh") for _ in range(length)) for length in lengths]


def write_text(directory):
    """Writes the four files that `text2text_tmpdir` reads; dev rows are new ones."""
    directory.mkdir(parents=True)
    train = rows(3000, seed=1)
    held_out = [row for row in rows(300, seed=2) if row not in set(train)][:100]
    for name, lines in (("train", train), ("eval", held_out)):
        for side, of_side in (("inputs", lines), ("targets", [line[::-1] for line in lines])):
            (directory / f"{side}.{name}.txt").write_text("\n".join(of_side) + "\n")
    return directory


def generate(directory):
    """Generates the toy's data below `directory` and returns the data directory."""
    text = write_text(directory / "text")
    data_dir = directory / "data"
    registry.problem(PROBLEM).generate_data(data_dir, text)
    return data_dir


@contextlib.contextmanager
def one_engine():
    """Inside, trainers of the same settings get the same engine, put back to its first state.

    So its graphs are made once, whatever the number of steps, which the toy's schedule leaves alone.
    Trainers that live at the same time need other settings.
    """
    import numpy as np
    import pytest

    from t2t_keras.training import Engine, trainer

    first_values = {}

    def engine(hp, **arguments):
        key = hp, *sorted((arguments | {"train_steps": None}).items())
        if key not in first_values:
            made = Engine(hp, **arguments)
            variables = [*made.model.variables, *made.optimizer.variables, *made.state().values()]
            first_values[key] = made, [(variable, np.array(variable)) for variable in variables]
        made, values = first_values[key]
        vars(made).pop("train", None)  # what a test may have put in its place
        for variable, value in values:
            variable.assign(value)
        made.step = 0
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "Engine", engine)
        yield


def programs():
    """The directory of our commands and `python`."""
    return Path(sys.executable).parent


def quick_graphs():
    """Leaves out what Python and TensorFlow do for graphs that live long; tests run most once or twice."""
    import tensorflow as tf

    # Graphs are many objects, seldom garbage: to look through all of them as often as Python does takes a
    # quarter of the time, and Keras does for each layer that it quantizes.
    gc.freeze()  # and what comes is collected while it is young, unless somebody says 2
    gc.set_threshold(50_000, 50, 1_000)
    gc.collect = lambda generation=1, collect=gc.collect: collect(generation)
    # XLA's programs run shorter than it compiles them.
    quick = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", quick)
    # Grappler, too, takes a quarter of a graph's time to the end of its first run. It is on elsewhere.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@functools.cache
def server():
    """Processes of it are forks of one that has imported what is slow to import."""
    context = multiprocessing.get_context("forkserver")
    ours = ["t2t_keras.training", "t2t_keras.export", "t2t_keras.problems"]
    context.set_forkserver_preload(["tensorflow", "keras", "tensorflow_text", "sacrebleu", *ours])
    # As every command does; without oneDNN, whose rewriting of graphs takes a quarter of a command's time.
    with mock.patch.dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0"):
        multiprocessing.forkserver.ensure_running()
    return context


def command(name, *arguments, **options):
    """Runs `t2t-keras-<name>` as its users do, but that TensorFlow has been imported."""
    return forked([f"t2t-keras-{name}", *map(str, arguments)], **options)


def forked(argv, **options):
    """Runs a command line, `python -c` or a script, in a process that has imported TensorFlow and us."""
    return start(argv, **options).end()


class start:
    """Starts what `forked` runs; `eagerly` is without graphs: less work for a few steps of a small model."""

    def __init__(self, argv, eagerly=False, input="", cwd=None, env=None):
        self.argv, self.folder = argv, tempfile.TemporaryDirectory()
        self.standard = [Path(self.folder.name, name) for name in ("stdin", "stdout", "stderr")]
        self.standard[0].write_text(input)
        environment = dict(os.environ if env is None else env)
        given = argv, cwd or Path.cwd(), environment, self.standard, eagerly
        self.process = server().Process(target=_become, args=given)
        self.process.start()

    def end(self):
        """Waits for its end."""
        self.process.join()
        said = [path.read_text() for path in self.standard[1:]]
        self.folder.cleanup()
        return subprocess.CompletedProcess(self.argv, self.process.exitcode, *said)


def _become(argv, directory, environment, standard, eagerly):
    for number, path in enumerate(standard):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = open(0, closefd=False)  # multiprocessing has closed it
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    quick_graphs()
    if eagerly:
        sys.modules["tensorflow"].config.run_functions_eagerly(True)
    sys.argv = argv
    if argv[:2] == ["python", "-c"]:
        return exec(argv[2], {"__name__": "__main__"})
    if argv[:2] == ["python", "-m"]:
        sys.argv = argv[2:]
        return runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
    if argv[0].endswith(".py"):
        sys.path.insert(0, str(Path(argv[0]).parent))
        return runpy.run_path(argv[0], run_name="__main__")
    if not argv[0].startswith("t2t-keras-"):
        return getattr(commands, argv[0].replace("-", "_"))()
    runpy.run_module(f"t2t_keras.cli.{argv[0].removeprefix('t2t-keras-')}", run_name="__main__")


def ran(name, *arguments, **options):
    """Runs a command that must succeed."""
    return succeeded(command(name, *arguments, **options))


def succeeded(done):
    """What has run, which must have succeeded."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def python(*arguments, **options):
    """Runs `python`."""
    argv = [sys.executable, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, **options)


def train(directory, steps, *flags, eagerly=True):
    """Trains on the toy's data below `directory`, evaluated at every second step, into `run` there."""
    ran(
        *("train", f"--problem={PROBLEM}", f"--hparams={hparams(num_hidden_layers=1)}"),
        *(f"--data_dir={directory / 'data'}", f"--output_dir={directory / 'run'}"),
        *(f"--train_steps={steps}", "--local_eval_frequency=2", *flags),
        eagerly=eagerly,
    )


def complaint(done):
    """The last line of a command that must have failed with one line and code 2."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().split("\n")[-1]
