"""Commands of T2T's names take T2T's command lines; so do scripts that call T2T's `main`."""

import functools
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import toy
from absl import flags

from t2t_keras.cli import app, t2t as commands


@pytest.fixture
def parsed(monkeypatch, capsys):
    """Returns the lines that a command of T2T's says of its command line."""
    before = set(flags.FLAGS)

    def parse(line):
        program, *words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [program, *words])
        define = functools.partial(commands._define_flags, program[4:].replace("-", "_"))
        app.command(define, lambda: None)(lenient=True)
        return capsys.readouterr().err.splitlines()

    yield parse
    flags.FLAGS.remove_flag_values([name for name in flags.FLAGS if name not in before])
    flags.FLAGS.unparse_flags()
    flags.FLAGS.set_gnu_getopt(False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("t2t-trainer --worker_gpu=8 --schedule=train_and_evaluate", ["--worker_gpu=8: all visible devices"]),
        ("t2t-trainer --schedule=local_run --eval_throttle_seconds=60", ["--schedule=local_run: ", "--eval_throttle_seconds=60: only"]),
        ("t2t-trainer --use_tpu --cloud_tpu_name=me-tpu --tpu_num_shards 8 --nocloud_mlengine", ["--use_tpu=true: TPUs", "--cloud_tpu_name=me-tpu: TPUs"]),
        ("t2t-trainer --worker_id=1 --master=grpc://a --ps_replicas=1 --ps_job=/job:ps --ps_gpu=0 --worker_job=/job:w --sync", ["--worker_id=1: ", "--worker_job=/job:w: ", "--ps_replicas=1: ", "--master=grpc://a: "]),
        ("t2t-trainer --hparams_range=r --autotune_objective=o --autotune_max_trials=3", ["--hparams_range=r: ", "--autotune_objective=o: ", "--autotune_max_trials=3: "]),
        ("t2t-trainer --train_dir=a --batch_size 128 --model transformer --dbg", ["--train_dir=a", "--batch_size", "128", "--dbg"]),
        ("t2t-datagen --max_cases=5 --usr_dir=u ' '", ["--max_cases=5: leave it out", "--usr_dir=u", " "]),
        ("t2t-datagen --model=lstm_seq2seq --hparams_set=x", ["--model=lstm_seq2seq: the command builds no model", "--hparams_set=x"]),
        ("t2t-decoder --eval_use_test_set --schedule=train --decode_shards=1", ["--schedule=train: ", "--eval_use_test_set=true: "]),
        ("t2t-avg-all --model_dir=run --output_dir=avg --n=20 --min_steps=3 --wait_minutes=1", []),
        ("t2t-translate-all --decoder_command='qsub {params}' --beam_size=8 --alpha=1 --source=a", ["--decoder_command=qsub {params}: t2t-translate-all"]),
        ("t2t-bleu --source=a --wait_minutes=9 --report_zero", ["--wait_minutes=9: ", "--report_zero=true: ", "--source=a: "]),
        ("t2t-exporter --model=transformer --hparams_set=a --problem=b --data_dir=c --output_dir=d --as_text", ["--as_text=true: "]),
        ("t2t-query-server --server=a:1 --servable_name=b --problem=c --data_dir=d --inputs_once=e", []),
    ],
)  # fmt: skip
def test_a_line_is_taken_with_a_warning_of_each_flag(parsed, line, said, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    warnings = (f"ignoring {words}" if ": " in words else f"{words} is ignored" for words in said)
    lines, expected = parsed(line), [f"{line.split()[0]}: {warning}" for warning in warnings]
    assert len(lines) == len(expected) and all(map(str.startswith, lines, expected))


def test_overrides_and_old_names(parsed):
    line = "t2t-trainer --problems=a --hparams=b=1 --hp_c=2 --train_steps 5 --hp_d 3 --data_dir=e"
    found = parsed(line), *map(flags.FLAGS.__getattr__, ("problem", "hparams", "train_steps"))
    assert found == ([], "a", "b=1,c=2,d=3", 5)
    assert parsed("t2t-datagen --problem=x") == [] and flags.FLAGS.problem == ["a"]  # parsed once


def test_hparams_of_a_decoder_say_how_it_samples(parsed, tmp_path):
    given = "--hparams=sampling_temp=2,a=1 --decode_hparams=beam_size=1"
    parsed(f"t2t-decoder --output_dir={tmp_path} {given}")
    read = functools.partial(map, flags.FLAGS.__getattr__, ("hparams", "decode_hparams"))
    found = []
    commands._on_trained_model(lambda: found.extend(read()))
    (tmp_path / "hparams.json").write_text('{"sampling_keep_top_k": 3}')
    commands._on_trained_model(lambda: found.extend(read()))
    both = "sampling_temp=2,beam_size=1"
    assert found == ["a=1", both, None, f"sampling_keep_top_k=3,{both}"]
    assert [*read()] == ["sampling_temp=2,a=1", "beam_size=1"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("t2t-trainer --schedule=evaluate_on_train_data", "--schedule=evaluate_on_train_data of tensor2tensor is not here: training and evaluation alternate: leave it out, or call t2t-keras-eval"),
        ("t2t-trainer --model=lstm_seq2seq", "it is a network other than the Transformer"),
        ("t2t-datagen --only_list", "--only_list=true of tensor2tensor is not here"),
        ("t2t-keras-train --problems=x", "unknown flag --problems. Did you mean 'problem'?"),
        ("t2t-keras-datagen --problem=x y", "unexpected argument 'y'"),
    ],
)  # fmt: skip
def test_another_action_is_an_error_and_our_own_commands_are_strict(line, message):
    assert message in toy.complaint(toy.forked(line.split()))


def ran(line, cwd):
    by_graphs = line.startswith(("t2t-exporter", "t2t-trainer", "t2t-translate-all"))
    return toy.succeeded(toy.forked(shlex.split(line), cwd=cwd, eagerly=not by_graphs))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("t2t")
    toy.write_text(directory / "text")
    ran(f"t2t-datagen --problem={toy.PROBLEM} --data_dir=data --tmp_dir=text", directory)
    given = "--hparams_set=transformer_test --hp_max_length 32 --hp_num_heads=2 --train_steps=3"
    places = f"--problem={toy.PROBLEM} --data_dir=data --output_dir=run --local_eval_frequency=1"
    ran(
        f"t2t-trainer {places} {given} --decode_hparams=beam_size=1,extra_length=2 --eval_steps=1",
        directory,
    )
    (directory / "run" / "flags.txt").touch()
    (directory / "inputs").write_text("a b\nc\nd e f\n")
    return directory


def test_averages_translations_and_their_scores(trained):
    done = ran("t2t-avg-all --model_dir=run --output_dir=avg/ --n=2", trained)
    said = [f"wrote the mean of 2 checkpoints to avg/model.ckpt-{step}" for step in (2, 3)]
    assert done.stdout.splitlines() == said and (trained / "avg" / "flags.txt").exists()
    few = ran("t2t-avg-all --model_dir=run --output_dir=avg8", trained).stderr
    assert few == "warning: run has 3 checkpoints, fewer than --n=8\n"
    names = [f"{toy.PROBLEM}-{end}" for end in ("2", "3", "flags.txt")]
    (trained / "said").mkdir()
    shutil.copy(trained / "inputs", trained / "said" / names[0])
    line = f"t2t-translate-all --model_dir=avg --source=inputs --problem={toy.PROBLEM} --data_dir=data "
    line += "--hparams_set=transformer_big --translations_dir=said "
    done = ran(f"{line} --decode_hparams=return_beams=true", trained)
    assert done.stdout == f"3 translations in said/{names[1]}\n"
    assert f"said/{names[0]} exists and is kept" in done.stderr
    assert "\t" in (trained / "said" / names[1]).read_text()
    assert sorted(os.listdir(trained / "said")) == names
    said = ran("t2t-bleu --translations_dir=said --reference=inputs --event_dir=ev", trained).stdout
    assert re.findall("^said/(.*): BLEU_uncased = ", said, re.MULTILINE) == names[:2]


def test_decoder_bleu_and_exporter(trained):
    given = f"--problem={toy.PROBLEM} --data_dir=data --model=transformer --output_dir=run"
    line = f"t2t-decoder {given} --hparams_set=transformer_big --decode_from_file=inputs"
    line += " --decode_to_file=outputs --decode_hparams=beam_size=1,extra_length=1"
    shutil.copytree(trained / "run", trained / "bare", ignore=shutil.ignore_patterns("*.json"))
    done = ran(f"{line} --hparams=num_heads=2 --keep_timestamp --checkpoint_path=bare", trained)
    assert "ignoring --hparams: run/hparams.json has the settings" in done.stderr
    assert len((trained / "outputs").read_text().splitlines()) == 3
    done = ran("t2t-bleu --translation=inputs --reference=inputs", trained)
    assert done.stdout.splitlines()[:2] == ["BLEU_uncased = 100.00", "BLEU_cased = 100.00"]
    done = ran(f"t2t-exporter {given} --hparams_set=x --nowarm_up", trained)
    assert "has the signatures serialized_example (serving_default)" in done.stdout


def test_scripts_that_call_main(tmp_path):
    """One assigns T2T's flags, has flags of its own and runs commands twice; one is as T2T's example."""
    shutil.copytree(Path(__file__).parent / "data" / "t2t_scripts", tmp_path, dirs_exist_ok=True)
    others = "--data_dir=data --output_dir=run --hparams_set=transformer_test --eval_steps=1"
    for script, given, said in (
        ("own_flags.py", "--mine=x --vocab_size=7 --tmp_dir=t", "flags x 7 1\n"),
        ("plain.py", "--problem=turned --train_steps=3", "resuming from step 2"),
    ):
        words = f"python -m t2t_keras.t2t_modules {script} {given} {others} --hp_max_length=32 "
        words += "--new=3 --decode_hparams=beam_size=1,extra_length=1"
        done = toy.succeeded(toy.forked(words.split(), cwd=tmp_path, eagerly=True))
        assert f"{script}: --new=3 is ignored" in done.stderr and said in done.stdout + done.stderr
    assert (tmp_path / "run" / "model.ckpt-3.index").exists()
