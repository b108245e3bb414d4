"""t2t-keras-train and the commands that use its run, as their users run them."""

import json
import re
import signal
import subprocess
import time

import pytest
import toy
from corpus_files import write_lines

from t2t_keras import registry
from t2t_keras.checkpoints import read_settings
from t2t_keras.data.translate import ParallelFiles

SEARCH = "--decode_hparams=beam_size=1,extra_length=1"


def arguments(toy_dir, output_dir, steps):
    return [
        f"--problem={toy.PROBLEM}",
        f"--hparams={toy.hparams(num_hidden_layers=1)}",
        f"--data_dir={toy_dir / 'data'}",
        f"--output_dir={output_dir}",
        f"--train_steps={steps}",
        *("--local_eval_frequency=10", "--eval_steps=1", SEARCH),
    ]


@pytest.fixture(scope="module")
def run(toy_dir):
    """A short run, stopped by SIGTERM in mid-training and continued by its directory alone; both as they ended."""
    output_dir = toy_dir / "run"
    line = [toy.programs() / "t2t-keras-train", *arguments(toy_dir, output_dir, 60)]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(line, **pipes, text=True) as process:
        while not (output_dir / "model.ckpt-10.index").exists():
            assert process.poll() is None, "ended before its first checkpoint"
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate()
    stopped = subprocess.CompletedProcess(line, process.returncode, stdout, stderr)
    assert not (output_dir / "model.ckpt-60.index").exists()
    # An earlier start, whose flags the whole command above has dropped.
    record = json.loads((output_dir / "run.json").read_text())
    former = "--eval_early_stopping_steps=1 --eval_early_stopping_metric_delta=9"
    record["starts"].insert(0, {**record["starts"][0], "command": f"t2t-keras-train {former}"})
    (output_dir / "run.json").write_text(json.dumps(record))
    return output_dir, toy.ran("train", f"--output_dir={output_dir}"), stopped


def test_saves_and_leaves_after_sigterm_and_then_ends_normally(run):
    output_dir, done, stopped = run
    assert stopped.returncode == 0, stopped.stderr
    last = stopped.stderr.strip().split("\n")[-1]
    (step,) = re.findall(r"^stopped by SIGTERM after step (\d+), which is saved$", last)
    assert 10 <= int(step) < 60
    assert f"resuming from step {step} of {output_dir}\n" in done.stderr
    said = done.stdout.splitlines()
    assert "1 batch shape, 64 x 8; 3,000 examples, 47 batches per epoch" in said
    assert {"1 graph for all batch shapes, XLA off", "1 replica, CPU; float32"} < {*said}
    assert (output_dir / "model.ckpt-60.index").exists()
    assert done.stderr.strip().split("\n")[-1] == "done: step 60"
    assert said[-1].startswith("dev loss")


def test_is_the_same_after_a_kill(tmp_path):
    script, command = toy.ROOT / "benchmarks" / "restarts.py", toy.programs() / "t2t-keras-train"
    flags = ["--kills=1", "--train_steps=60", f"--directory={tmp_path}", f"--command={command}"]
    flags.append("--flags=--local_eval_frequency=15")
    done = toy.succeeded(toy.python(script, *flags))
    assert "After 1 kills, equal to the run without a stop." in done.stdout


def test_decodes_what_is_typed(toy_dir, run):
    flags = [f"--output_dir={run[0]}", f"--data_dir={toy_dir / 'data'}", SEARCH]
    done = toy.ran("decode", *flags, "--decode_interactive", input="a b\nc\nq\nd\n", eagerly=True)
    assert len(done.stdout.split("\n")) == 3


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--problem=text2text_tmpdi"], "Did you mean 'text2text_tmpdir'?"),
        (["--hparams=transformer_bse"], "Did you mean 'transformer_base'?"),
        (["--hparams=transformer_tiny,hiden_size=3"], "Did you mean 'hidden_size'?"),
        (["--train_step=5"], "Did you mean 'train_steps'?"),
        (["--train_steps=many"], "flag --train_steps=many is not a non-negative integer"),
        (["--decode_hparams=beem_size=4"], "Did you mean 'beam_size'?"),
        (["--output_dir=/proc/run"], "cannot be written"),
        (["--data_dir=/nowhere"], "t2t-keras-datagen"),
        (["--data_dir=gs://bucket/data"], "--data_dir=gs://bucket/data is not local"),
        (["--warm_start_from=gs://bucket/run"], "is not local: mount or copy it"),
        (["--on_the_fly", "--tmp_dir=hdfs://text"], "--tmp_dir=hdfs://text is not local"),
        (["--on_the_fly", "--generate_data"], "leave out --on_the_fly or --generate_data"),
        (["--on_the_fly", "--tmp_dir=/nowhere"], "/nowhere"),
        (["--warm_start_from=/nowhere"], "no checkpoint at /nowhere"),
    ],
)
def test_train_complains_in_one_line(toy_dir, tmp_path, flags, expected):
    done = toy.command("train", *arguments(toy_dir, tmp_path / "run", 1), *flags)
    assert expected in toy.complaint(done)


SMALL = {"num_hidden_layers": 1, "hidden_size": 16, "filter_size": 32, "num_heads": 2}
TRAIN_SMALL = f"""
import sys
from t2t_keras import registry
from t2t_keras.cli import train
big = registry.hparams("transformer_big")
registry._sets["transformer_big"] = lambda: big.replace(**{SMALL})
sys.argv = ["t2t-keras-train", *sys.argv[3:]]
train.run()
"""


def test_the_line_of_the_paper_says_what_comes_first_and_trains_then(tmp_path, monkeypatch):
    """As it stands, with directories, and with data; text and network are small, all else is as it is."""
    line = ["--problem=translate_ende", "--hparams=transformer_big"]
    places = [f"--data_dir={tmp_path / 'data'}", f"--output_dir={tmp_path / 'run'}"]
    for given, name, directory in ((line, "", "DIR"), (line + places, "_wmt14", tmp_path / "data")):
        said = toy.complaint(toy.command("train", *given))
        assert f"t2t-keras-datagen --problem=translate_ende{name} --data_dir={directory} " in said

    rows = enumerate(("train", "dev", "test"))
    texts = {split: [write_lines(tmp_path / split, toy.rows(50, seed))] * 2 for seed, split in rows}
    problem = registry.problem("translate_ende")
    monkeypatch.setattr(type(problem), "source", lambda self, tmp_dir: ParallelFiles(texts))
    problem.generate_data(tmp_path / "data", tmp_path)
    steps = ["--train_steps=3", "--eval_steps=1", SEARCH]
    done = toy.forked(["python", "-c", TRAIN_SMALL, *line, *places, *steps], eagerly=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("problem translate_ende_wmt14, hparams transformer_big, ")
    hp, run = read_settings(str(tmp_path / "run"))
    assert {*hp.diff(registry.hparams("transformer_big"))} == {*SMALL}
    assert (run["problem"], run["starts"][0]["step"]) == ("translate_ende_wmt14", 3)


def test_trains_on_text_without_shards(toy_dir, tmp_path):
    line = [*arguments(toy_dir, tmp_path / "run", 2), "--tmp_dir=text"]
    line += ["--on_the_fly", f"--data_dir={tmp_path / 'data'}"]
    done = toy.ran("train", *line, eagerly=True, cwd=toy_dir)
    _, run = read_settings(str(tmp_path / "run"))
    assert run["starts"][0]["command"].endswith(f" --tmp_dir={toy_dir / 'text'}")
    assert "2 batch shapes, from 64 x 8 to 32 x 16; text is encoded as it is read" in done.stdout
    assert [path.suffix for path in (tmp_path / "data").iterdir()] == [".subwords"]
    evaluating = (f"--output_dir={tmp_path / 'run'}", "--eval_steps=1", SEARCH)
    done = toy.ran("eval", *evaluating, f"--tmp_dir={toy_dir / 'text'}", eagerly=True)
    assert done.stdout.startswith("step 2: dev loss ")
    done = toy.command("train", *arguments(toy_dir, tmp_path / "run", 4))
    assert "on_the_fly was True and is now False" in toy.complaint(done)


def test_decode_takes_settings_that_agree_in_what_matters(toy_dir, run, tmp_path):
    source = tmp_path / "source.txt"
    source.write_text("a\n")
    flags = [f"--output_dir={run[0]}", f"--data_dir={toy_dir / 'data'}", SEARCH]
    flags.append(f"--decode_from_file={source}")
    alike = toy.hparams(num_hidden_layers=1, batch_size=99)
    toy.ran("decode", *flags, f"--hparams={alike}", eagerly=True)
    other = toy.hparams(num_hidden_layers=1, num_heads=2)
    done = toy.command("decode", *flags, f"--hparams={other}")
    assert "num_heads was 4 and is now 2" in toy.complaint(done)


def test_xla_keeps_its_programs_in_a_run_of_any_name(tmp_path):
    run = tmp_path / "a \"b' c\\d"
    code = (
        f"from t2t_keras.cli import train; train._keep_compiled({str(run)!r})\n"
        "import tensorflow as tf; tf.function(tf.negative, jit_compile=True)(tf.ones(3))"
    )
    toy.succeeded(toy.forked(["python", "-c", code]))
    assert list(tmp_path.iterdir()) == [run]
    assert list((run / "xla_cache").iterdir())
