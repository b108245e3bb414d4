"""What all commands share: quiet imports, streams, the ranges of numbers, T2T's flags, errors in one line.

`tests/test_docs.py` holds the page of T2T's flags to it.
"""

import importlib
import itertools
import os
import re
import subprocess
import sys

import pytest
import toy
from absl import flags

import t2t_keras
from t2t_keras import registry
from t2t_keras.cli import app, options

COMMANDS = ("avg", "bleu", "convert", "datagen", "decode", "eval", "export", "inspect", "query")
COMMANDS += ("train",)
NOISE = """\
import os, types
os.write(2, b"E0000 no GPU\\n")
config = types.SimpleNamespace(list_physical_devices=lambda: os.write(2, b"cuInit\\n"))
"""
USE = """\
import sys
from t2t_keras.cli import options
options.import_tensorflow()
import tensorflow
print("ours", file=sys.stderr)
"""
ECHO = """\
import sys
from t2t_keras.cli import app, options

def main():
    options.import_tensorflow()
    print([*sys.stdin])

app.command(lambda: None, main)(["x"])
"""


def with_noisy(directory, after=""):
    """An environment with a module that stands for TensorFlow, by the name of TensorFlow."""
    (directory / "tensorflow.py").write_text(NOISE + after)
    paths = os.pathsep.join([str(directory), os.path.dirname(os.path.dirname(t2t_keras.__file__))])
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return {**inherited, "PYTHONPATH": paths, "PYTHONUNBUFFERED": ""}


@pytest.mark.parametrize(
    ("of_the_user", "after", "code", "first", "last"),
    [
        ({}, "", 0, "ours", "ours"),
        ({"TF_CPP_MIN_LOG_LEVEL": "0"}, "", 0, "E0000 no GPU", "ours"),
        ({}, "raise ImportError('no such library')", 1, "E0000 no GPU", "ImportError: no such library"),
    ],
)  # fmt: skip
def test_what_tensorflow_writes_while_imported_is_dropped_unless_it_fails(
    tmp_path, of_the_user, after, code, first, last
):
    done = toy.python("-c", USE, env=with_noisy(tmp_path, after) | of_the_user)
    lines = done.stderr.splitlines()
    assert (done.returncode, lines[0], lines[-1]) == (code, first, last)
    assert code or len(lines) == len({first, last})


@pytest.mark.parametrize(
    ("machine", "of_the_user", "asked"),
    [("x86_64", None, "1"), ("x86_64", "0", "0"), ("arm64", None, None)],
)
def test_commands_ask_for_onednn_on_x86(monkeypatch, machine, of_the_user, asked):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", of_the_user or "")
    if of_the_user is None:
        monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    monkeypatch.setattr("platform.machine", lambda: machine)
    options.import_tensorflow()
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == asked


@pytest.mark.parametrize(
    ("line", "heavy", "shown"),
    [
        ("bleu --help", ["tensorflow", "keras", "sacrebleu", "numpy"], "--translation: "),
        ("bleu --metrics=parsing_f1 --reference={0} --translation={0}", ["tensorflow", "keras", "sacrebleu"], "= 100.00"),
        ("datagen --help", ["tensorflow"], "--tmp_dir: "),
        ("datagen --list", ["tensorflow"], "Numbers, dates, times and prices"),
        ("train --problem=translate_ende_numbers", ["tensorflow"], "--data_dir is missing"),
        ("decode --output_dir=.", ["tensorflow"], "give one of --decode_from_file=FILE, --decode_interactive, --score_file=FILE and"),
        ("export --version", ["tensorflow"], f"export.py {t2t_keras.__version__}\n"),
    ],
)  # fmt: skip
def test_what_is_quick_imports_nothing_heavy(tmp_path, line, heavy, shown):
    (tmp_path / "trees").write_text("(TOP (NP (NN tea)))\n")
    name, *given = line.format(tmp_path / "trees").split(" ")
    done = toy.python("-X", "importtime", "-m", f"t2t_keras.cli.{name}", *given)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert shown in done.stdout + done.stderr
    assert "t2t_keras.cli.app" in imported
    assert not imported.intersection(heavy)


@pytest.mark.parametrize(
    ("redirections", "code", "output", "said"),
    [
        (">/dev/full", 2, "", "x: standard output cannot be written: No space left on device.\n"),
        (">&-", 0, "", ""),
        ("<&-", 0, "[]\n", ""),
        (">&- 2>&- <&-", 0, "", ""),
    ],
)
def test_output_that_cannot_be_written_and_streams_that_are_closed(
    tmp_path, redirections, code, output, said
):
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirections}', sys.executable, ECHO]
    given = {"env": with_noisy(tmp_path), "input": "", "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, **given)
    assert (done.returncode, done.stdout, done.stderr) == (code, output, said)


@pytest.mark.parametrize(
    ("act", "code", "output", "said"),
    [
        ("print('Grüße', '\\udcff')", 0, "Grüße \\udcff\n", ""),
        ("os.kill(os.getpid(), 15)", 143, "", "x: stopped by SIGTERM\n"),
        ("os.kill(os.getpid(), 2)", 130, "", "x: stopped by SIGINT\n"),
    ],
)
def test_while_tensorflow_is_imported_under_an_ascii_locale(tmp_path, act, code, output, said):
    """TensorFlow's importing catches errors of its own."""
    act = f"\ntry:\n    {act}\nexcept Exception:\n    pass\n"
    given = with_noisy(tmp_path, act) | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", ECHO], env=given, input=b"", capture_output=True)
    assert (done.returncode, done.stderr.decode()) == (code, said)
    assert done.stdout.decode() == output + "[]\n" * (not code)


def test_a_signal_that_a_destructor_swallows_counts_a_little_later():
    code = (
        "import gc, os, time\n"
        "from t2t_keras.cli import app\n"
        "app.EndAtSignals.seconds = 0.1\n"
        "def main():\n"
        "    gc.callbacks.append(lambda phase, _: phase == 'stop' and os.kill(os.getpid(), 15))\n"
        "    gc.collect()\n"
        "    gc.callbacks.clear()\n"
        "    time.sleep(9)\n"
        "app.command(lambda: None, main)(['x'])"
    )
    done = toy.python("-c", code)
    assert done.returncode == 143 and done.stderr.endswith("\nx: stopped by SIGTERM\n")


def test_it_says_nothing_when_nobody_reads_on():
    command = [sys.executable, "-m", "t2t_keras.cli.bleu", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_an_error_of_a_file_that_nothing_has_foreseen_is_one_line():
    code = (
        "from t2t_keras.cli import app, datagen\n"
        "def main(): raise OSError(28, 'No space left on device', '/data/vocab')\n"
        "app.command(datagen.define_flags, main)()"
    )
    assert toy.complaint(toy.python("-c", code)).endswith("/data/vocab: No space left on device.")


# Numbers, repeated flags, flags without effect

NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e20", str(10**20), "9" * 5000)
FROM_1 = {
    *("num_concurrent_processes", "vocab_size", "timeout_secs", "local_eval_frequency"),
    *("log_step_count_steps", "eval_early_stopping_steps"),
}
ANY_SIZE = {
    *("clean_max_ratio", "minutes", "eval_timeout_mins", "keep_checkpoint_every_n_hours"),
    "eval_early_stopping_metric_delta",
}


@pytest.fixture
def command(request):
    """The name of a command, whose flags alone are defined in this process."""
    before = set(flags.FLAGS)
    importlib.import_module(f"t2t_keras.cli.{request.param}").define_flags()
    yield request.param
    flags.FLAGS.remove_flag_values([name for name in flags.FLAGS if name not in before])


def answer(capsys, command, *arguments, main=lambda: None):
    """The exit code of a command, which by default does nothing, and what it says."""
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    with pytest.raises(SystemExit) as ended:
        app.command(lambda: None, main)([f"t2t-keras-{command}", *arguments])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, indirect=True)
def test_every_number_is_taken_or_refused_in_one_line(command, capsys):
    numeric = [
        flag.name
        for module, defined in flags.FLAGS.flags_by_module_dict().items()
        for flag in defined
        if module.startswith("t2t_keras.")
        and isinstance(flag.parser, flags.FloatParser | flags.IntegerParser)
    ]
    for name in numeric:
        taken = set()
        for number in NUMBERS:
            code, said = answer(capsys, command, f"--{name}={number}")
            if code == 0:
                taken.add(number)
                assert said == ""
            else:
                assert code == 2
                assert said.startswith(f"t2t-keras-{command}: flag --{name}=")
                assert said.count("\n") == 1
        wanted = {"0"} - ({"0"} if name in FROM_1 else set())
        wanted |= {"1e20", str(10**20)} if name in ANY_SIZE else set()
        assert (name, taken) == (name, wanted)
        code, said = answer(capsys, command, f"--{name}=1", f"--{name}=1")
        twice = f"--{name} is given 2 times; the last counts: {flags.FLAGS[name].value}"
        assert (code, said) == (0, f"t2t-keras-{command}: {twice}\n")


@pytest.mark.parametrize("command", ["train"], indirect=True)
def test_what_no_path_has(command, capsys):
    # Python 3.10 reads no zero byte in a list.
    wrong = {"\udcfc": "is not UTF-8, as", "\0": "has a zero byte: remove it"}
    names = "data_dir", "warm_start_from", "dev_files"
    for (value, message), name in itertools.product(wrong.items(), names):
        if sys.version_info >= (3, 11) or (value, name) != ("\0", "dev_files"):
            code, said = answer(capsys, command, f"--{name}=a{value}b")
            assert code == 2 and said.startswith(f"t2t-keras-train: flag --{name} {message}")


EARLY = ["--eval_early_stopping_metric=bleu", "--eval_early_stopping_metric_delta=1"]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("train", ["--tmp_dir=x"], "--tmp_dir: it needs --generate_data or --on_the_fly"),
        ("train", ["--tmp_dir=x", "--on_the_fly"], ""),
        ("train", ["--tmp_dir=x", "--on_the_fly", "--train_files=a,b"], "--tmp_dir: the files have paths of their own"),
        ("train", ["--num_concurrent_processes=2"], "--num_concurrent_processes: it needs --generate_data"),
        ("train", [*EARLY, "--eval_early_stopping_steps=5"], ""),
        ("train", EARLY, "--eval_early_stopping_metric, --eval_early_stopping_metric_delta: early stopping needs --eval_early_stopping_steps"),
        ("train", ["--keep_checkpoint_max=0", "--keep_checkpoint_every_n_hours=1"], "--keep_checkpoint_every_n_hours: all checkpoints are kept"),
        ("export", ["--output_dir=x", "--checkpoint_path=y"], "--output_dir: --checkpoint_path names the checkpoint"),
    ],
    indirect=["command"],
)  # fmt: skip
def test_a_flag_without_effect_gets_a_line(command, arguments, message, capsys):
    main = importlib.import_module(f"t2t_keras.cli.{command}").main
    _, said = answer(capsys, command, *arguments, main=main)
    lines = [line for line in said.splitlines() if line.startswith("ignoring")]
    assert lines == [f"ignoring {message}"] * bool(message)


# Command lines of tensor2tensor are taken, or answered with what to do

T2T = (
    "--model=transformer --schedule=continuous_train_and_eval --worker_gpu=1 --worker_replicas=1 "
    "--ps_replicas=0 --nosync --worker_gpu_memory_fraction=0.95 --notfdbg --xla_compile=False"
)
"""Values that T2T's users write, or its defaults."""


@pytest.mark.parametrize("command", ["train", "decode", "eval", "export"])
def test_flags_of_t2t_that_say_what_is_done_anyway_are_taken(command):
    # Without a GPU, or on one device: `train` would use all in sight.
    done = toy.command(command, *T2T.split(), env={"CUDA_VISIBLE_DEVICES": ""})
    missing = "data_dir" if command == "train" else "output_dir"
    assert toy.complaint(done).endswith(f": --{missing} is missing: give --{missing}=...")


def test_all_flags_of_t2t_that_are_not_here_are_named_at_once():
    given = "--model=transformer --schedule evaluate --tfdbg --worker_replicas=2 --problem=x"
    assert toy.complaint(toy.command("train", *given.split())) == (
        "t2t-keras-train: --schedule=evaluate of tensor2tensor is not here: training and evaluation "
        "alternate: leave it out, or call t2t-keras-eval or t2t-keras-decode. --worker_replicas=2 of "
        "tensor2tensor is not here: hosts are named in TF_CONFIG, see --distribute of "
        "t2t-keras-train. --tfdbg=true of tensor2tensor is not here: leave it out."
    )


@pytest.mark.parametrize(
    ("command", "flag", "message"),
    [
        ("decode", "--decode_from_file=a", "--output_dir is missing"),
        ("train", "--decode_from_file=a", "--decode_from_file=a of tensor2tensor is not here: call t2t-keras-decode"),
        ("train", "--hp_hidden_size=3", "give --hparams=hidden_size=VALUE"),
        ("train", "-schedule=test", "--schedule=test of tensor2tensor is not here"),
        ("train", "--flagfile={}", "--schedule=test of tensor2tensor is not here"),
        ("train", "--model=transfromer", "unknown model 'transfromer'. Did you mean 'transformer'?"),
        *((command, "--model=lstm_seq2seq", f"t2t-keras-{command}: model 'lstm_seq2seq' of tensor2tensor is not supported: it is a network other than the Transformer") for command in ("train", "decode")),
    ],
)  # fmt: skip
def test_a_flag_of_t2t_is_answered(tmp_path, command, flag, message):
    (tmp_path / "flags").write_text("--schedule=test\n")
    assert message in toy.complaint(toy.command(command, flag.format(tmp_path / "flags")))


def test_gpus_in_sight_are_what_worker_gpu_may_say(monkeypatch):
    monkeypatch.setattr(app.glob, "glob", lambda pattern: ["/dev/nvidia0", "/dev/nvidia1"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(flags, "FLAGS", flags.FlagValues())
    flags.FLAGS(["program"])
    assert app._devices_used() == 1  # as in decoding
    flags.DEFINE_string("distribute", "auto", "", flag_values=flags.FLAGS)
    assert app._devices_used() == 2
    flags.FLAGS.distribute = "none"
    assert app._devices_used() == 1
    flags.FLAGS.distribute = "auto"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert app._devices_used() == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal(name):
    assert max(map(len, toy.ran(name, "--help").stdout.splitlines())) <= 80
    source = (toy.ROOT / f"t2t_keras/cli/{name}.py").read_text()  # `ran` leaves out the examples
    assert not re.search("(?m)^    t2t-keras-.{67}", source)


def test_registry_help_names_what_there_is():
    lines = toy.ran("train", "--registry_help").stdout.split("\n")
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert named == [*registry.list_models(), *registry.list_hparams(), *registry.list_problems()]
    assert next(line.split() for line in lines if "translate_ende_numbers " in line)[1:]
