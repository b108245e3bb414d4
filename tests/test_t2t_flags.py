"""A command line of tensor2tensor is answered with what to do. tests/test_docs.py holds the page to it."""

import toy

from t2t_keras.cli.t2t_flags import explain


def test_all_that_are_not_here_are_named_at_once():
    done = toy.command("train", "--model=transformer", "--problem=x", "--schedule", "train")
    assert toy.complaint(done) == (
        "t2t-keras-train: --model of tensor2tensor is not here: there is one model, the Transformer: leave "
        "it out. --schedule of tensor2tensor is not here: training and evaluation take turns: leave "
        "it out, or call t2t-keras-eval or t2t-keras-decode."
    )


def test_one_dash_and_a_file_of_flags_are_answered_too(tmp_path):
    (tmp_path / "flags").write_text("--model=transformer\n")
    for given in ("-model=transformer", f"--flagfile={tmp_path / 'flags'}"):
        assert "--model of tensor2tensor is not here" in toy.complaint(toy.command("train", given))


def test_what_a_command_has_is_not_named():
    argv = ["t2t-keras-decode", "--decode_from_file=a", "--keep_timestamp", "--keep_timestamp"]
    assert explain(argv, ["decode_from_file"]) == (
        "--keep_timestamp of tensor2tensor is not here: leave it out."
    )
    assert explain(["program", "decode_from_file", "--problme=x"], []) == ""
