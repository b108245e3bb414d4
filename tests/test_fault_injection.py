"""A kill or a full disk at any change of a file leaves what was there, or the whole result.

    LD_PRELOAD=fault_points.so python test_fault_injection.py FOLDER NUMBER CASE...

prints a line of JSON for each of NUMBER faults, chosen at random (0: for all, also of a first result), of
each case; if it is one of `PAIRS`, for NUMBER pairs of commands that are begun at once.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
import toy

from t2t_keras.errors import UserError

FAULTS = {"kill": 1, "full": 2}  # as fault_points.c has them
SMALL = toy.hparams(num_hidden_layers=1, hidden_size=16, filter_size=16)
SEARCH = "--decode_hparams=beam_size=1,extra_length=1"
DATAGEN = f"datagen --problem={toy.PROBLEM} --data_dir=made --tmp_dir=text"
TRAIN = (
    f"train --problem={toy.PROBLEM} --data_dir=data --output_dir=trained --eval_steps=1 "
    f"--local_eval_frequency=4 --hparams={SMALL} {SEARCH} --train_steps="
)
AVERAGE = "avg --output_path=out/averaged.ckpt --checkpoints="
DECODE = f"decode --data_dir=data --decode_from_file=source.txt --decode_to_file=target.txt {SEARCH} --output_dir="
EVAL = f"eval --output_dir=run --data_dir=data --eval_steps=1 {SEARCH}"
EXPORT = "export --data_dir=data --export_dir=exported --output_dir="
ATTENTION = "inspect attention --data_dir=data --html=a.html --npz=a.npz --output_dir=run --text="
TO_KERAS = "convert --output_path=out.keras --checkpoint_path="
TO_T2T = "convert --output_path=out/model.ckpt-5 --checkpoint_path="

INPUTS = (
    f"{TRAIN}4 --output_dir=run --local_eval_frequency=2",
    f"{TRAIN}2 --output_dir=other --hparams={SMALL},num_heads=2",
    f"{TO_KERAS}run/model.ckpt-2 --output_path=2.keras",
    f"{TO_KERAS}run/model.ckpt-4 --output_path=4.keras",
)
CASES = {
    "datagen": (DATAGEN, DATAGEN),
    "train": (f"{TRAIN}4", f"{TRAIN}2"),
    "avg": (f"{AVERAGE}run/model.ckpt-2,run/model.ckpt-4", f"{AVERAGE}other/model.ckpt-2"),
    "convert": (f"{TO_KERAS}run/model.ckpt-4", f"{TO_KERAS}other"),
    "convert_back": (f"{TO_T2T}4.keras", f"{TO_T2T}2.keras"),
    "decode": (f"{DECODE}run", f"{DECODE}other"),
    "export": (f"{EXPORT}run", f"{EXPORT}other"),
    "eval": (EVAL, EVAL),
    "inspect": (f"{ATTENTION}abc", f"{ATTENTION}cba"),
}
"""Commands that write, each with one that makes what it replaces."""

PAIRS = {
    **{f"{name}_pairs": CASES[name] for name in ("avg", "convert", "convert_back", "decode")},
    "train_pairs": (f"{TRAIN}4", f"{TRAIN}4 --random_seed=1"),
    "export_pairs": (f"{EXPORT}run --version=1", f"{EXPORT}other --version=1"),
}
"""Commands that write the same, each of other settings; every second time the first one twice."""


def digest(arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:12]


def look():
    """Reads all results: values by name, each of which a fault may leave as it was or make as it will be."""
    import tensorflow as tf

    from t2t_keras import checkpoints
    from t2t_keras.cli.convert import load_keras
    from t2t_keras.training.run_checkpoint import read_best

    found = {}
    for pattern in ("made/*", "target.txt", "a.*", "exported/[0-9]/assets.extra/*"):
        for path in filter(Path.is_file, Path().glob(pattern)):
            if not {"unfinished", "incomplete", "lock"} & {*path.name.split(".")}:
                found[str(path)] = digest([np.fromfile(path, np.uint8)])
    if Path("out.keras").exists():
        found["keras"] = digest(load_keras("out.keras").get_weights())
    with contextlib.suppress(UserError):  # there is none
        prefix = checkpoints.resolve("out")
        about = checkpoints.read_settings("out")[1].get("averages")
        found["out"] = [prefix, digest(checkpoints.load_model(prefix).get_weights()), about]
    if Path("trained/run.json").exists():
        checkpoints.read_settings("trained")
        read_best("trained")
        for prefix in checkpoints.t2t.checkpoints_in("trained"):
            checkpoints.t2t.require_whole(prefix)
            found["trained"] = digest(v for _, v in sorted(checkpoints.read(prefix).items()))
    for path in Path().glob("exported/[0-9]"):
        found[path.name] = float(tf.saved_model.load(str(path)).value)
    return found


def become(command, fault=0, point=0):
    """Becomes a command with a fault; returns how many changes of files it makes."""
    import tensorflow as tf

    from t2t_keras.export import saved_model

    def save(module, path, signature):
        small = tf.Module()
        small.value = tf.Variable(float(sum(weight.numpy().sum() for weight in module._weights)))
        tf.saved_model.save(small, str(path))

    saved_model._save = save  # no graph is made
    tf.config.run_functions_eagerly(True)
    faults = ctypes.CDLL(None)
    faults.fault_begin(os.getcwd().encode(), fault, ctypes.c_long(point))
    sys.argv = command.split(" ")
    try:
        runpy.run_module(f"t2t_keras.cli.{sys.argv[0]}", run_name="__main__")
    except SystemExit as left:
        if left.code:
            raise
    return faults.fault_count()


def begin(folder, act, *arguments):
    """Starts a fork in a folder; returns a function that gives exit code, what is returned and said."""
    output = tempfile.TemporaryFile("w+")
    if not (child := os.fork()):
        signal.alarm(120)  # seconds that a command may take
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        code = 1
        try:
            os.chdir(folder)
            print("\n" + json.dumps(act(*arguments)), flush=True)
            code = 0
        except SystemExit as left:
            code = left.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)

    def end():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        said = output.read()
        return code, None if code else json.loads(said.splitlines()[-1]), said

    return end


def required(*arguments):
    code, value, output = begin(*arguments)()
    assert code == 0, output
    return value


def copied(source, target):
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(source, target)


def wrong(work, command, fault, point, old, new):
    """Runs a command with a fault; returns what is wrong with its end or with what it left; or ""."""
    code, _, output = begin(work, become, command, FAULTS[fault], point)()
    unread, left, complaint = begin(work, look)()
    if unread:
        return f"cannot be read: {complaint}"
    mixed = [n for n in {*old, *new, *left} if left.get(n) not in (old.get(n), new.get(n))]
    unlike = code not in (0, {"full": 2, "kill": -signal.SIGKILL}[fault]) or "Traceback" in output
    if mixed or unlike or (code == 0 and left != new):
        return f"code {code}, {left}, was {old}, not {new}: {output}"
    if fault == "kill" and left != new:
        code, _, output = begin(work, become, command)()
        if code or (left := required(work, look)) != new:
            return f"begun again: code {code}, {left}, not {new}: {output}"
    return ""


def after_faults(name, number, inputs, work):
    """Yields what is wrong after some faults of a case where a result is there; 0: after all faults."""
    command, usual = CASES[name]
    for before in [usual] if number else ["", usual]:
        start = copied(inputs, work.with_name("start"))
        if before:
            required(start, become, before)
        old = required(start, look)
        points = required(copied(start, work), become, command)
        new = required(work, look)
        faults = [(fault, point) for fault in FAULTS for point in range(points)]
        for fault, point in random.Random(0).sample(faults, number or len(faults)):
            message = wrong(copied(start, work), command, fault, point, old, new)
            yield {"before": before, "fault": fault, "point": point, "wrong": message}


def after_pairs(name, number, inputs, work):
    """Yields what is wrong after pairs of commands, begun at the same time or shortly after."""
    one, other = PAIRS[name]
    alone = {}
    for command in PAIRS[name]:
        required(copied(inputs, work), become, command)
        alone[command] = required(work, look)
    for place in range(number):
        second = (other, one)[place % 2]
        begun = [begin(copied(inputs, work), become, one)]
        time.sleep((0, 0, 0.05, 0.3)[place % 4])
        begun.append(begin(work, become, second))
        ends = [(command, *end()) for command, end in zip((one, second), begun, strict=True)]
        left = required(work, look)
        well = left in [alone[command] for command, code, _, _ in ends if code == 0]
        well &= all(code in (0, 2) and "Traceback" not in said for _, code, _, said in ends)
        yield {"second": second, "wrong": "" if well else f"{left} of {alone}: {ends}"}


def main(folder, number, *names):
    inputs, work = (Path(folder).resolve() / name for name in ("inputs", "work"))
    toy.generate(inputs)
    (inputs / "source.txt").write_text("a b c\nh g\n")
    for command in INPUTS:
        required(inputs, become, command)
    for name in names:
        after = after_pairs if name in PAIRS else after_faults
        for line in after(name, int(number), inputs, work):
            print(json.dumps({"case": name, **line}), flush=True)


@pytest.mark.skipif(not shutil.which("cc"), reason="fault_points.c needs a compiler of C")
def test_what_a_kill_a_full_disk_and_a_second_command_leave(tmp_path):
    """Some points of some commands; with 0 in place of 2 the script takes all."""
    source, library = Path(__file__).with_name("fault_points.c"), tmp_path / "fault_points.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    cases = ("avg", "convert", "decode", "avg_pairs", "decode_pairs")
    command = [sys.executable, __file__, tmp_path, "2", *cases]
    environment = {**os.environ, "LD_PRELOAD": str(library), "TF_CPP_MIN_LOG_LEVEL": "3"}
    lines = [*map(json.loads, subprocess.check_output(command, env=environment).splitlines())]
    assert len(lines) == 10
    assert not [line for line in lines if line["wrong"]]


if __name__ == "__main__":
    __import__("tensorflow")
    main(*sys.argv[1:])
