"""Runs commands in forks, with a fault at each of their changes of files, and looks at what is left.

    python fault_injection.py faults FOLDER NUMBER [CASE...]
    python fault_injection.py pairs FOLDER NUMBER [CASE...]

The first prints a line of JSON for each of NUMBER faults of every case, chosen at random (0: for all of
them), the second for each of NUMBER pairs of commands that are begun at once. Both need a process that has
imported TensorFlow and not used it, with fault_points.c in it: one of toy.py's.
"""

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import toy
import warm_server

from t2t_keras.errors import UserError

FAULTS = {"kill": 1, "full": 2}  # as fault_points.c has them
SECONDS = 120  # that a command may take

TRAIN = (
    f"t2t-keras-train --problem={toy.PROBLEM} --data_dir=data --output_dir=trained --eval_steps=1 "
    f"--local_eval_frequency=4 --hparams={toy.hparams(num_hidden_layers=1, hidden_size=16, filter_size=16)} "
    "--decode_hparams=beam_size=1,extra_length=1 --train_steps="
)
DECODE = (
    "t2t-keras-decode --data_dir=data --decode_from_file=source.txt --decode_to_file=target.txt "
    "--decode_hparams=beam_size=1,extra_length=1 --output_dir="
)
INSPECT = (
    "t2t-keras-inspect attention --data_dir=data --html=a.html --npz=a.npz --output_dir=run --text="
)
EXPORT = "t2t-keras-export --data_dir=data --export_dir=exported --output_dir="
AVERAGE = "t2t-keras-avg --output_path=out/averaged.ckpt --checkpoints="


class Case(NamedTuple):
    """A command.

    Attributes:
        command: its command line.
        before: commands after which it runs, too: they make what it replaces.
        look: returns what there is as values by name, each of which a fault may leave as it was or make
            as it will be; it raises what a reader raises.
    """

    command: str
    before: tuple[str, ...]
    look: Callable[[], dict[str, Any]]


def digest(arrays) -> str:
    summed = hashlib.sha256()
    for name in sorted(arrays):
        summed.update(name.encode() + arrays[name].tobytes())
    return summed.hexdigest()[:12]


def of_model(model) -> str:
    return digest({str(place): weight for place, weight in enumerate(model.get_weights())})


def files(pattern) -> dict[str, str]:
    found = [path for path in Path().glob(pattern) if path.is_file()]
    whole = [
        path for path in found if not {"unfinished", "incomplete", "lock"} & {*path.name.split(".")}
    ]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in whole}


def averaged():
    from t2t_keras import checkpoints

    try:
        prefix = checkpoints.resolve("out")
    except UserError:
        return {"average": None}
    weights = of_model(checkpoints.load_model(prefix))
    return {"average": [prefix, weights, checkpoints.read_settings("out")[1]["averages"]]}


def keras_file():
    from t2t_keras.cli.convert import load_keras

    if not Path("out.keras").exists():
        return {}
    return {"model": of_model(load_keras("out.keras"))}


def checkpoint():
    from t2t_keras import checkpoints

    if not Path("out/model.ckpt-5.index").exists():
        return {}
    return {"checkpoint": of_model(checkpoints.load_model("out"))}


def trained():
    from t2t_keras import checkpoints
    from t2t_keras.training.run_checkpoint import read_best

    if not Path("trained/run.json").exists():
        return {}
    read_best("trained")
    there = checkpoints.t2t.checkpoints_in("trained")
    for prefix in there:
        checkpoints.t2t.require_whole(prefix)
    return {"latest": digest(checkpoints.read("trained"))} if there else {}


def exported():
    import tensorflow as tf

    versions = [path for path in Path("exported").glob("*") if path.name.isdigit()]
    values = {path.name: float(tf.saved_model.load(str(path)).value) for path in versions}
    return {**values, **files("exported/[0-9]/assets.extra/*")}


CASES = {
    "datagen": Case(
        f"t2t-keras-datagen --problem={toy.PROBLEM} --data_dir=made --tmp_dir=text",
        (f"t2t-keras-datagen --problem={toy.PROBLEM} --data_dir=made --tmp_dir=text",),
        lambda: files("made/*"),
    ),
    "train": Case(f"{TRAIN}4", (f"{TRAIN}2",), trained),
    "avg": Case(
        f"{AVERAGE}run/model.ckpt-2,run/model.ckpt-4",
        (f"{AVERAGE}run/model.ckpt-4", f"{AVERAGE}other/model.ckpt-2"),
        averaged,
    ),
    "convert": Case(
        "t2t-keras-convert --checkpoint_path=run/model.ckpt-4 --output_path=out.keras",
        ("t2t-keras-convert --checkpoint_path=other --output_path=out.keras",),
        keras_file,
    ),
    "convert_back": Case(
        "t2t-keras-convert --checkpoint_path=4.keras --output_path=out/model.ckpt-5",
        ("t2t-keras-convert --checkpoint_path=2.keras --output_path=out/model.ckpt-5",),
        checkpoint,
    ),
    "decode": Case(f"{DECODE}run", (f"{DECODE}other",), lambda: files("target.txt")),
    "export": Case(
        f"{EXPORT}run",
        (f"{EXPORT}other",),
        exported,
    ),
    "eval": Case(
        "t2t-keras-eval --output_dir=run --data_dir=data --eval_steps=1 "
        "--decode_hparams=beam_size=1,extra_length=1",
        (),
        dict,
    ),
    "inspect": Case(f"{INSPECT}abc", (f"{INSPECT}cba",), lambda: files("a.*")),
}
"""Commands that write; t2t-keras-bleu, -parseval and -query do not."""


def make_inputs() -> None:
    """Makes data, two runs and files of Keras's in the working directory."""
    import numpy as np

    from t2t_keras import Transformer, checkpoints, registry
    from t2t_keras.checkpoints.run_directory import describe

    toy.generate(Path())
    Path("source.txt").write_text("a b c\nh g\n")
    problem = registry.problem(toy.PROBLEM)
    sizes = problem.vocab_sizes("data")
    for run, heads, steps in (("run", 4, (2, 4)), ("other", 2, (2,))):
        hp = registry.hparams(
            toy.hparams(num_hidden_layers=1, hidden_size=16, filter_size=16, num_heads=heads)
        )
        model = Transformer(
            hp, source_vocab_size=sizes["inputs"], target_vocab_size=sizes["targets"]
        )
        checkpoints.write_settings(run, hp, {**describe(model), "problem": problem.name})
        for step in steps:
            numbers = np.random.default_rng(step)
            for weight in model.weights:
                weight.assign(numbers.normal(size=weight.shape))
            checkpoints.save_t2t(model, f"{run}/model.ckpt-{step}", {"global_step": np.int64(step)})
            if run == "run":
                model.save(f"{step}.keras")


def run(command: str) -> None:
    """Becomes a command, but that its SavedModel is a small one and no graph is made."""
    import tensorflow as tf

    from t2t_keras.export import saved_model

    def save(module, path, signature):
        small = tf.Module()
        small.value = tf.Variable(float(sum(weight.numpy().sum() for weight in module._weights)))
        tf.saved_model.save(small, str(path))

    saved_model._save = save
    tf.config.run_functions_eagerly(True)
    warm_server.run(command.split(" "))


class Fork:
    """A fork that does something; nothing of it goes on after that.

    Args:
        folder: its working directory.
        act: what it does.
    """

    def __init__(self, folder: Path, act: Callable[[], Any]):
        self._output, self._returned = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self._child = os.fork()
        if self._child:
            return
        signal.alarm(SECONDS)
        os.dup2(self._output.fileno(), 1)
        os.dup2(self._output.fileno(), 2)
        code = 1
        try:
            os.chdir(folder)
            json.dump(act(), self._returned)
            code = 0
        except SystemExit as left:
            code = left.code or 0
        except BaseException:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            self._returned.flush()
        os._exit(code)

    def end(self) -> tuple[int, Any, str]:
        """Waits; returns its exit code, what `act` returned, and what it wrote."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        with self._output, self._returned:
            self._output.seek(0)
            self._returned.seek(0)
            value = self._returned.read()
            return code, json.loads(value) if value else None, self._output.read()


def in_fork(folder: Path, act: Callable[[], Any]) -> tuple[int, Any, str]:
    return Fork(folder, act).end()


def required(folder: Path, act: Callable[[], Any]) -> Any:
    code, value, output = in_fork(folder, act)
    if code:
        raise RuntimeError(f"in {folder}: code {code}: {output}")
    return value


def with_fault(folder: Path, command: str, fault: str, point: int) -> tuple[int, str]:
    """Runs a command with a fault; returns its exit code and what it wrote."""

    def act():
        begin = ctypes.CDLL(None).fault_begin
        begin.argtypes = ctypes.c_char_p, ctypes.c_int, ctypes.c_long
        begin(str(folder).encode(), FAULTS[fault], point)
        run(command)

    code, _, output = in_fork(folder, act)
    return code, output


def number_of_points(folder: Path, command: str) -> int:
    """Runs a command without a fault; returns how many changes of files it makes."""

    def act():
        faults = ctypes.CDLL(None)
        faults.fault_begin(str(folder).encode(), 0, 0)
        with contextlib.suppress(SystemExit):
            run(command)
        return faults.fault_count()

    return required(folder, act)


def wrong(case: Case, work: Path, fault: str, point: int, old: dict, new: dict) -> str:
    """Runs a case with a fault; returns what is wrong with its end or with what it left; or ""."""
    code, output = with_fault(work, case.command, fault, point)
    seen, left, complaint = in_fork(work, case.look)
    if seen:
        return f"cannot be read: {complaint}"
    for name in {*old, *new, *left}:
        if left.get(name) not in (old.get(name), new.get(name)):
            return f"{name} is {left.get(name)}, not {old.get(name)} or {new.get(name)}"
    if code == 0 and left != new:
        return f"code 0, but {left}, not {new}: {output}"
    if code and fault == "full" and (code != 2 or "Traceback" in output):
        return f"code {code}: {output}"
    if fault == "kill" and code not in (0, -signal.SIGKILL):
        return f"code {code}: {output}"
    if fault == "kill" and left != new:
        code, _, output = in_fork(work, lambda: run(case.command))
        seen, left, complaint = in_fork(work, case.look)
        if code or seen or left != new:
            return f"begun again: code {code}, {left}, not {new}: {output}{complaint}"
    return ""


def inject(folder: Path, number: int, names: Sequence[str]) -> None:
    """Prints what is wrong after some faults of each case where a result is there, at random.

    0: after all faults, fresh ones too.
    """
    chosen = random.Random(0)
    inputs, work = folder / "inputs", folder / "work"
    for name in names or CASES:
        case = CASES[name]
        befores = ("", *case.before)
        for before in befores[-1:] if number else befores:
            start = inputs
            if before:
                start = folder / "before"
                shutil.rmtree(start, ignore_errors=True)
                shutil.copytree(inputs, start)
                required(start, functools.partial(run, before))
            old = required(start, case.look)
            shutil.copytree(start, work)
            points = number_of_points(work, case.command)
            new = required(work, case.look)
            faults = [(fault, point) for fault in FAULTS for point in range(points)]
            if number:
                faults = chosen.sample(faults, min(number, len(faults)))
            for fault, point in faults:
                shutil.rmtree(work)
                shutil.copytree(start, work)
                message = wrong(case, work, fault, point, old, new)
                line = {"case": name, "before": before, "points": points, "fault": fault}
                print(json.dumps({**line, "point": point, "wrong": message}), flush=True)
            shutil.rmtree(work)


PAIRS = {
    **{name: (CASES[name].command, *CASES[name].before[:1]) for name in ("decode", "convert")},
    "train": (f"{TRAIN}4", f"{TRAIN}4 --random_seed=1"),
    "avg": (CASES["avg"].command, CASES["avg"].before[1]),
    "convert_back": (CASES["convert_back"].command, *CASES["convert_back"].before),
    "export": (f"{EXPORT}run --version=1", f"{EXPORT}other --version=1"),
}
"""Commands that write the same: a pair of the first is of equal settings, both are of others."""


def start_pairs(folder: Path, number: int, names: Sequence[str]) -> None:
    """Prints what is wrong after pairs of commands, begun at the same time or shortly after."""
    delays = random.Random(0)
    inputs, work = folder / "inputs", folder / "work"
    for name in names or PAIRS:
        look, alone = CASES[name].look, {}
        for command in PAIRS[name]:
            shutil.copytree(inputs, work)
            required(work, functools.partial(run, command))
            alone[command] = required(work, look)
            shutil.rmtree(work)
        for place in range(number):
            one, other = PAIRS[name][0], PAIRS[name][1 - place % 2]
            shutil.copytree(inputs, work)
            first = Fork(work, functools.partial(run, one))
            time.sleep(delays.choice((0, 0, 0.05, 0.3)))
            second = Fork(work, functools.partial(run, other))
            ends = [(command, *fork.end()) for command, fork in ((one, first), (other, second))]
            left = required(work, look)
            whole = [alone[command] for command, code, _, _ in ends if code == 0]
            message = "" if left in whole else f"{left}, not one of {whole}"
            message += "".join(
                o for _, code, _, o in ends if code not in (0, 2) or "Traceback" in o
            )
            codes = [end[1] for end in ends]
            line = {"case": name, "equal": one == other, "codes": codes, "wrong": message}
            print(json.dumps(line), flush=True)
            shutil.rmtree(work)


def main():
    what, folder, number, *names = sys.argv[1:]
    folder = Path(folder).resolve()
    if not (folder / "inputs").exists():
        (folder / "inputs").mkdir()
        required(folder / "inputs", make_inputs)
    {"faults": inject, "pairs": start_pairs}[what](folder, int(number), names)


if __name__ == "__main__":
    main()
