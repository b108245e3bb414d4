"""Every number that a command line takes is in a range; a flag without effect gets a line."""

import importlib

import pytest
from absl import flags

from t2t_keras.cli import app

COMMANDS = (
    *("avg", "bleu", "convert", "datagen", "decode", "eval", "export", "inspect"),
    *("parseval", "query", "train"),
)
NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e20", str(10**20), "9" * 5000)
FROM_1 = {
    *("num_concurrent_processes", "vocab_size", "timeout_secs", "local_eval_frequency"),
    *("log_step_count_steps", "eval_early_stopping_steps"),
}
ANY_SIZE = {
    *("clean_max_ratio", "minutes", "eval_timeout_mins", "keep_checkpoint_every_n_hours"),
    "eval_early_stopping_metric_delta",
}


@pytest.fixture(params=COMMANDS)
def command(request, monkeypatch):
    """The name of a command, whose flags alone are defined in this process."""
    before = set(flags.FLAGS)
    importlib.import_module(f"t2t_keras.cli.{request.param}").define_flags()
    yield request.param
    flags.FLAGS.remove_flag_values([name for name in flags.FLAGS if name not in before])


def answer(capsys, command, *arguments, main=lambda rest: None):
    """The exit code of a command, which by default does nothing, and what it says."""
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    with pytest.raises(SystemExit) as ended:
        app.start(main, [f"t2t-keras-{command}", *arguments])
    return ended.value.code, capsys.readouterr().err


def numeric_flags():
    return [
        flag.name
        for module, defined in flags.FLAGS.flags_by_module_dict().items()
        for flag in defined
        if module.startswith("t2t_keras.")
        and isinstance(flag.parser, flags.FloatParser | flags.IntegerParser)
    ]


def test_every_number_is_taken_or_refused_in_one_line(command, capsys):
    for name in numeric_flags():
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


def test_a_flag_that_is_given_twice_gets_a_line(command, capsys):
    for name in numeric_flags():
        code, said = answer(capsys, command, f"--{name}=1", f"--{name}=1")
        value = flags.FLAGS[name].value
        assert code == 0
        assert said == (
            f"t2t-keras-{command}: --{name} is given 2 times; the last counts: {value}\n"
        )


EARLY = ["--eval_early_stopping_metric=bleu", "--eval_early_stopping_metric_delta=1"]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("train", ["--tmp_dir=x"], "--tmp_dir: it needs --generate_data or --on_the_fly"),
        ("train", ["--tmp_dir=x", "--on_the_fly"], ""),
        ("train", ["--num_concurrent_processes=2"], "--num_concurrent_processes: it needs --generate_data"),
        ("train", [*EARLY, "--eval_early_stopping_steps=5"], ""),
        ("train", EARLY, "--eval_early_stopping_metric, --eval_early_stopping_metric_delta: early stopping needs --eval_early_stopping_steps"),
        ("train", ["--keep_checkpoint_max=0", "--keep_checkpoint_every_n_hours=1"], "--keep_checkpoint_every_n_hours: all checkpoints are kept"),
    ],
    indirect=["command"],
)  # fmt: skip
def test_a_flag_without_effect_gets_a_line(command, arguments, message, capsys):
    main = importlib.import_module(f"t2t_keras.cli.{command}").main
    _, said = answer(capsys, command, *arguments, main=main)
    lines = [line for line in said.splitlines() if line.startswith("no effect")]
    assert lines == [f"no effect of {message}"] * bool(message)
