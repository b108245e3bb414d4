"""Summaries of runs as text, from directories of ours and of tensor2tensor."""

import json
import os
import shutil
import time

import golden
import numpy as np
import pytest
from run_files import BEGUN, change_start, events_file, start, write_events, write_run

from t2t_keras import checkpoints, registry
from t2t_keras.errors import UserError
from t2t_keras.inspection.runs import Point, read_events, read_run, run_summary, state
from t2t_keras.training.reporting import EventLog

NOW = BEGUN + 7200


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two runs that differ in two settings."""
    directory = tmp_path_factory.mktemp("runs")
    small = write_run(directory / "small")
    starts = [start(BEGUN, 500, ended="done: step 400", step=400)]
    settings = "transformer_tiny,hidden_size=32,num_heads=2"
    large = write_run(directory / "large", settings, starts, factor=0.5)
    return [read_run(str(small)), read_run(str(large))]


def summary_rows(runs):
    """The rows of the summary by heading, split at double spaces."""
    found, title = {}, ""
    for line in run_summary(runs, NOW):
        if line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
        elif line.startswith("  "):
            cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
            found.setdefault(title, []).append(cells)
    return found


def overview(run):
    """The cells of the first table by the name of their row; those that are wrapped are joined."""
    cells, name = {}, ""
    for line in run_summary([run], NOW):
        if not line:
            return cells
        if line[2] != " ":
            name = line.split("  ")[1]
            cells[name] = line[2 + len(name) :].strip()
        else:
            cells[name] += f" {line.strip()}"
    return cells


# One run


def test_a_run_that_has_ended(two):
    """Its overview has state, best figures, times and checkpoints; then come settings and command."""
    cells, rows = overview(two[0]), summary_rows(two[:1])
    assert cells["state"] == "done: step 400"
    assert cells["step"] == "400 of 400"
    assert cells["problem"] == "translate_ende_multi30k"
    assert cells["parameters"] == "12345"
    assert cells["best dev loss"] == "2.0000 at step 400"
    assert cells["best dev BLEU"] == "30.00 at step 400"
    assert cells["best dev accuracy"] == "0.5000 at step 200"  # the first of equals
    assert cells["last dev accuracy"] == "0.5000 at step 400"
    assert cells["training loss"] == "1.000 at step 400"
    assert cells["training learning rate"] == "1.00e-03 at step 400"
    assert cells["versions"] == "keras 3.15.1"
    assert cells["time"] == "16:40: training 60%, evaluation 25%, compilation 5%"
    assert cells["checkpoints"] == "2; newest model.ckpt-400; best model.ckpt-400"
    assert "test loss" not in cells
    assert rows["settings that differ from transformer_tiny"] == [
        ["the set", "this run"],
        ["hidden_size", "128", "64"],
    ]
    [[command]] = rows[f"command of {two[0].directory}"]
    assert command == "t2t-keras-train --train_steps=400"


def test_points_that_are_not_numbers_are_left_out(tmp_path):
    """The last loss is the last finite one, the best one the best of those."""
    for step, value in ((100, 8.0), (200, float("nan"))):
        write_events(events_file(tmp_path, step), [(step, 1, {"loss": value})])
    write_events(events_file(tmp_path / "eval", 1), [(9, 1, {"loss": 7.0})])
    write_events(events_file(tmp_path / "eval", 2), [(10, 1, {"loss": float("nan")})])
    cells = overview(read_run(str(tmp_path)))
    assert cells["training loss"] == "8.000 at step 100"
    assert cells["best dev loss"] == cells["last dev loss"] == "7.0000 at step 9"


# How it goes


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        # 600 steps are left, 2 a second
        ({"process": os.getpid(), "train_steps": 1000}, "running as process {process}, 5:00 of"),
        ({"process": 2**22 + 1}, "killed: process {process} is gone; last written 2 hours ago"),
        ({"process": 1, "host": "elsewhere"}, "no end recorded; last written 2 hours ago on else"),
        ({}, "no end recorded; last written 2 hours ago on "),
    ],
)
def test_a_run_without_an_end_is_in_progress_or_was_killed(tmp_path, facts, words):
    """A process is alive or gone on this host; above 2**22 there are none; of others nothing is known."""
    change_start(write_run(tmp_path), ended="", **facts)
    told_state = state(read_run(str(tmp_path)), time.time() + 7200)
    assert told_state.startswith(words.format(**facts))


def test_a_run_of_two_starts_tells_both_and_adds_up_their_times(tmp_path):
    """Two starts of 100 and 120 seconds took 220 together, and so do their phases."""
    seconds = {"training": 80.0, "saving": 5.0}
    starts = [
        start(BEGUN, 100, ended="stopped by SIGTERM after step 200", step=200, seconds=seconds),
        start(BEGUN + 5000, 120, ended="done: step 400", from_step=200, step=400, seconds=seconds),
    ]
    cells = overview(read_run(str(write_run(tmp_path, starts=starts))))
    assert cells["starts"] == "2"
    assert cells["state"] == "done: step 400"
    assert cells["time"] == "3:40: training 73%, saving 5%"  # 160 and 10 of 220 s


def test_a_run_that_has_not_come_to_a_step_is_reported_too(tmp_path):
    """A run that has just begun has a record and an empty event file."""
    run = write_run(tmp_path, starts=[start(BEGUN, 0, ended="", process=os.getpid())])
    for path in run.iterdir():
        if path.name not in ("run.json", "hparams.json"):
            path.unlink()
    (run / f"events.out.tfevents.{BEGUN}.vm.1.0.v2").touch()
    read = read_run(str(run))
    assert overview(read)["step"] == "0 of 400"
    assert state(read, NOW) == f"running as process {os.getpid()}"


# What else a directory may hold


def test_a_checkpoint_of_t2t_with_its_flags(tmp_path):
    """T2T's flags tell the problem, set and steps; the checkpoint is its `transformer_test` after a step."""
    for path in golden.RELEASE.iterdir():
        if path.suffix != ".npz":
            shutil.copy(path, tmp_path)
    flags = "--problem=translate_ende_wmt8k\n--hparams_set=transformer_test\n--hparams=\n--v=0\n"
    (tmp_path / "flags.txt").write_text(flags + "--train_steps=1")
    run = read_run(str(tmp_path))
    cells = overview(run)
    assert cells["state"].startswith("a run of tensor2tensor, last written ")
    assert cells["problem"] == "translate_ende_wmt8k"
    assert cells["step"] == "1 of 1"
    assert ["optimizer_adam_beta2", "0.997", "0.98"] in summary_rows([run])[
        "settings that differ from transformer_test"
    ]


def test_curves_of_t2t(tmp_path):
    """T2T's metrics of dev have our names, signs and scales."""
    write_events(events_file(tmp_path, 1), [(s, s, {"loss": 9 / s}) for s in (1, 2, 3)])
    metrics = {"neg_log_perplexity": -4.5, "accuracy": 0.25, "approx_bleu_score": 0.125}
    tags = {f"metrics-translate_ende_wmt32k/targets/{n}": v for n, v in metrics.items()}
    write_events(events_file(tmp_path / "eval", 1), [(2, 2, {**tags, "loss": 7.0})])
    run = read_run(str(tmp_path))
    assert run.dev == {
        "loss": [(2, 4.5)],
        "accuracy": [(2, 0.25)],
        "approx_bleu": [(2, 12.5)],
    }
    assert overview(run)["best dev loss"] == "4.5000 at step 2"


def test_figures_of_test_are_reported(tmp_path):
    """Test metrics are those that `t2t-keras-eval` has left."""
    run = write_run(tmp_path)
    write_events(events_file(run / "eval_test", 1), [(400, 1, {"loss": 1.75, "bleu": 28.5})])
    cells = overview(read_run(str(run)))
    assert cells["test BLEU"] == "28.50 at step 400"
    assert cells["test loss"] == "1.7500 at step 400"


def test_averages_are_not_taken_for_the_run_they_came_from(tmp_path):
    """The record of averages is a copy of their run's, of which starts and steps do not count."""
    run = write_run(tmp_path / "run")
    prefixes = [str(run / f"model.ckpt-{step}") for step in (200, 400)]
    checkpoints.average(prefixes, str(tmp_path / "averaged" / "model.ckpt"))
    read = read_run(str(tmp_path / "averaged"))
    cells = overview(read)
    assert state(read, NOW) == f"averages of checkpoints of {run}"
    assert cells["checkpoints"] == "1; newest model.ckpt"
    assert not {"step", "starts", "time"} & cells.keys()


def test_checkpoints_alone(tmp_path):
    """A checkpoint without anything beside it has a step and no settings."""
    run = write_run(tmp_path / "run")
    for path in (run / "model.ckpt-200").parent.glob("model.ckpt-200.*"):
        shutil.copy(path, tmp_path)
    read = read_run(str(tmp_path))
    assert state(read, NOW) == "checkpoints without a record of their training"
    assert (read.step, read.hparams) == (200, None)


def test_a_set_that_is_not_known_here_is_said_so(tmp_path):
    """Settings are compared to the default ones where the run's set is a user's own."""
    run = write_run(tmp_path)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "hparams_set": "my_tiny"}))
    title = "settings that differ from transformer_base_v1 (my_tiny is unknown: give --t2t_usr_dir)"
    assert title in summary_rows([read_run(str(run))])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("absent", "absent does not exist: name the --output_dir of a training."),
        (".", "contains no run: .* There is one in .*run."),
        ("run/best", "run/best is not a directory: name the run.s directory, .*run."),
        ("run/model.ckpt-200", "is not a directory: name the run.s directory, .*run."),
        (
            "empty",
            "empty contains no run: it has no run.json, checkpoint or TensorBoard event file",
        ),
        ("damaged", "damaged/run.json is not JSON"),
    ],
)
def test_a_directory_without_a_run_is_said_in_a_line(tmp_path, named, message):
    """Names that hold no run end in an error that says which directory does."""
    write_run(tmp_path / "run")
    for name in ("empty", "damaged"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / "run.json").write_text('{"starts": [')
    with pytest.raises(UserError, match=message) as raised:
        read_run(os.path.join(tmp_path, named))
    assert "\n" not in str(raised.value)


# Several


def test_several_stand_side_by_side(two):
    """Facts stand in columns, and the settings that differ."""
    rows = summary_rows(two)
    cells = {row[0]: row[1:] for row in rows[""]}
    assert cells["best dev loss"] == ["2.0000 at step 400", "1.0000 at step 400"]
    assert rows["settings that differ"][-2:] == [
        ["hidden_size", "64", "32"],
        ["num_heads", "4", "2"],
    ]


def test_a_run_without_settings_leaves_the_comparison_to_the_others(two, tmp_path):
    """Settings that are unknown are no difference."""
    write_events(events_file(tmp_path, 1), [(1, 1, {"loss": 3.0})])
    rows = summary_rows([*two, read_run(str(tmp_path))])["settings that differ"]
    assert rows[-2:] == [["hidden_size", "64", "32", "-"], ["num_heads", "4", "2", "-"]]


def test_tables_are_no_wider_than_a_terminal(two):
    """Long cells are wrapped."""
    lines = run_summary(two, NOW)
    assert max(map(len, lines[: lines.index("")])) <= 100


# TensorBoard's event files, written by TensorFlow's own protocol buffers


def test_reads_what_a_training_logs(tmp_path):
    """The scalars of `EventLog` are curves; settings and records are not."""
    log = EventLog(str(tmp_path))
    log.write_run(0, registry.hparams("transformer_tiny"), {"problem": "p"})
    for step in (100, 200):
        log.write(step, {"loss": 300 / step, "learning_rate": 1e-4})
    log.flush()
    curves = read_events(tmp_path)
    assert curves == {
        "loss": [(100, 3.0), (200, 1.5)],
        "learning_rate": [(100, np.float32(1e-4)), (200, np.float32(1e-4))],
    }


def test_reads_both_kinds_of_scalars_and_nothing_else(tmp_path):
    """Scalars are those of T2T, `simple_value`, and ours, tensors, as TensorFlow writes both."""
    points = [(300, 12.5, {"metrics-x/accuracy": 0.25, "loss": -2.5, "words": "no scalar"})]
    write_events(events_file(tmp_path, 1), points)
    assert read_events(tmp_path) == {
        "metrics-x/accuracy": [Point(300, 0.25)],
        "loss": [Point(300, -2.5)],
    }


def test_a_start_that_went_back_replaces_what_came_later(tmp_path):
    """Points after the step from which a later start resumed are dropped; its file sorts earlier by name."""
    write_events(events_file(tmp_path, 9), [(s, s, {"loss": s}) for s in (1, 2, 3, 4)])
    write_events(events_file(tmp_path, 10), [(s, 10 + s, {"loss": 10 * s}) for s in (3,)])
    assert read_events(tmp_path)["loss"] == [(1, 1), (2, 2), (3, 30)]


def test_a_file_that_is_cut_off_anywhere_is_read_as_far_as_it_goes(tmp_path):
    """A truncated event file, such as a running one's, gives the points before the cut."""
    path = events_file(tmp_path, 1)
    write_events(path, [(s, s, {"loss": s}) for s in (1, 2, 3)])
    whole = path.read_bytes()
    numbers = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        steps = [point.step for point in read_events(tmp_path).get("loss", [])]
        assert steps == [1, 2, 3][: len(steps)]
        numbers.add(len(steps))
    assert numbers == {0, 1, 2}


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_no_error(tmp_path, seed):
    """An event file with a wrong bit is read as far as it can be."""
    path = events_file(tmp_path, 1)
    write_events(path, [(s, s, {"loss": s}) for s in range(5)])
    whole = bytearray(path.read_bytes())
    random = np.random.default_rng(seed)
    for place in random.permutation(len(whole))[:150]:
        damaged = whole.copy()
        damaged[place] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        assert sum(map(len, read_events(tmp_path).values())) <= 5


def test_a_directory_without_event_files_has_no_curves(tmp_path):
    """Neither an empty directory nor an absent one is an error."""
    assert read_events(tmp_path) == read_events(tmp_path / "absent") == {}
