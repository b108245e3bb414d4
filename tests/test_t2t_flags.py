"""A command line of tensor2tensor is taken, or answered with what to do. tests/test_docs.py holds the page to it."""

import pytest
import toy

from t2t_keras import registry

T2T = (
    "--model=transformer --schedule=continuous_train_and_eval --worker_gpu=1 --worker_replicas=1 "
    "--ps_replicas=0 --nosync --worker_gpu_memory_fraction=0.95 --notfdbg --xla_compile=False"
)
"""Values that T2T's users write, or its defaults."""


def test_flags_that_say_what_is_done_anyway_are_taken():
    for command in ("train", "decode", "eval", "export"):
        # Without a GPU, or on one device: `train` would use all in sight.
        done = toy.command(command, *T2T.split(), env={"CUDA_VISIBLE_DEVICES": ""})
        missing = "data_dir" if command == "train" else "output_dir"
        assert toy.complaint(done).endswith(f": --{missing} is missing: give --{missing}=...")


def test_all_that_are_not_here_are_named_at_once():
    given = "--model=transformer --schedule evaluate --tfdbg --worker_replicas=2 --problem=x"
    assert toy.complaint(toy.command("train", *given.split())) == (
        "t2t-keras-train: --schedule=evaluate of tensor2tensor is not here: training and evaluation "
        "alternate: leave it out, or call t2t-keras-eval or t2t-keras-decode. --worker_replicas=2 of "
        "tensor2tensor is not here: hosts are named in TF_CONFIG, see --distribute of "
        "t2t-keras-train. --tfdbg=true of tensor2tensor is not here: leave it out."
    )


def test_a_file_of_flags_is_answered_too(tmp_path):
    (tmp_path / "flags").write_text("--schedule=test\n")
    message = toy.complaint(toy.command("train", f"--flagfile={tmp_path / 'flags'}"))
    assert "--schedule=test of tensor2tensor is not here" in message


@pytest.mark.parametrize(
    ("command", "flag", "message"),
    [
        ("decode", "--decode_from_file=a", "--output_dir is missing"),
        ("train", "--decode_from_file=a", "--decode_from_file=a of tensor2tensor is not here: call t2t-keras-decode"),
        ("train", "--hp_hidden_size=3", "give --hparams=hidden_size=VALUE"),
        ("train", "-schedule=test", "--schedule=test of tensor2tensor is not here"),
        ("train", "--model=transfromer", "unknown model 'transfromer'. Did you mean 'transformer'?"),
        *((command, "--model=lstm_seq2seq", f"t2t-keras-{command}: model 'lstm_seq2seq' of tensor2tensor is not supported: it is a network other than the Transformer") for command in ("train", "decode")),
    ],
)  # fmt: skip
def test_a_flag_is_answered(command, flag, message):
    assert message in toy.complaint(toy.command(command, flag))


def test_gpus_in_sight_are_what_worker_gpu_may_say(monkeypatch):
    from absl import flags

    from t2t_keras.cli import app

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


def test_registry_help_names_what_there_is():
    done = toy.command("train", "--registry_help")
    assert done.returncode == 0
    lines = done.stdout.split("\n")
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert named == [*registry.list_models(), *registry.list_hparams(), *registry.list_problems()]
