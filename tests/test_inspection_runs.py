"""Summaries of runs as text, from directories of ours and of tensor2tensor."""

import json
import os
import shutil
import subprocess
import sys
import time

import golden
import numpy as np
import pytest
from run_files import BEGUN, change_start, events_file, start, write_events, write_run

from t2t_keras import checkpoints
from t2t_keras.errors import UserError
from t2t_keras.inspection.runs import read_run, run_summary, state

NOW = BEGUN + 7200


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two runs that differ in two settings; the second has no times of phases."""
    directory = tmp_path_factory.mktemp("runs")
    small = write_run(directory / "small")
    starts = [start(BEGUN, 500, ended="done: step 400", step=400)]
    settings = "transformer_tiny,hidden_size=32,num_heads=2"
    large = write_run(directory / "large", settings, starts, factor=0.5)
    return [read_run(str(small)), read_run(str(large))]


def told(runs):
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


def ran(directory, command="import os; print(os.getpid())"):
    """The number of a process that has ended."""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    return int(done.stdout)


# One run


def test_a_run_that_has_ended(two):
    cells, rows = overview(two[0]), told(two[:1])
    assert cells["state"] == "done: step 400"
    assert cells["step"] == "400 of 400"
    assert cells["problem"] == "translate_ende_multi30k"
    assert cells["parameters"] == "12345"
    assert cells["best dev loss"] == "2.0000 at step 400"
    assert cells["best dev BLEU"] == "30.00 at step 400"
    assert cells["best dev accuracy"] == "0.5000 at step 200"  # the first of equals
    assert cells["versions"] == "keras 3.15.1"
    assert cells["time"] == "16:40: training 60%, evaluation 25%, compilation 5%"
    assert cells["checkpoints"].startswith("2; newest model.ckpt-400, 0.0 MB, ")
    assert cells["checkpoints"].endswith("; best model.ckpt-400")
    assert "test loss" not in cells
    assert rows["settings that differ from transformer_tiny"] == [
        ["the set", "this run"],
        ["hidden_size", "128", "64"],
    ]
    [[command]] = rows[f"command of {two[0].directory}"]
    assert command == "t2t-keras-train --train_steps=400"


def test_curves_are_sparklines_with_their_first_last_and_best_points(two):
    [[drawn, words]] = told(two[:1])["training loss, nats per target token"]
    assert words == "first 8.000 at step 100, last 1.000 at step 400, best 1.000 at step 400"
    # From 8 to 4 to 2 to 1 in straight lines, at 32 places; eight heights, the lowest is 1.
    losses = np.interp(np.linspace(100, 400, 32), [100, 200, 300, 400], [8, 4, 2, 1])
    assert [ord(letter) - ord("▁") for letter in drawn] == np.rint(losses - 1).tolist()
    [[_, words]] = told(two[:1])["learning rate"]
    assert words == "first 1.00e-03 at step 100, last 1.00e-03 at step 400"


def test_size_and_age_of_the_newest_checkpoint(tmp_path):
    run = write_run(tmp_path / "run")
    os.utime(run / "model.ckpt-400.index", (NOW - 5400, NOW - 5400))
    with open(run / "model.ckpt-400.data-00000-of-00001", "ab") as file:
        file.write(bytes(2_000_000))
    words = "2; newest model.ckpt-400, 2.0 MB, 90 minutes ago; best model.ckpt-400"
    assert overview(read_run(str(run)))["checkpoints"] == words


def test_values_that_are_not_numbers_are_left_out(tmp_path):
    run = write_run(tmp_path)
    write_events(events_file(run, BEGUN + 1), [(500, 1, {"loss": float("nan")})])
    assert (
        "last 1.000 at step 400"
        in told([read_run(str(run))])["training loss, nats per target token"][0][1]
    )


# How it goes


def test_a_run_in_progress_tells_how_long_it_takes_yet(tmp_path):
    run = write_run(tmp_path)
    change_start(run, ended="", process=os.getpid(), train_steps=1000)
    read = read_run(str(run))
    words = f"running as process {os.getpid()}, 5:00 of training left"
    assert state(read, NOW) == words  # 600 steps, 2 a second


def test_a_run_that_was_killed_is_not_taken_for_one_in_progress(tmp_path):
    run = write_run(tmp_path)
    gone = ran(tmp_path)
    change_start(run, ended="", process=gone)
    read = read_run(str(run))
    words = state(read, time.time())
    assert words.startswith(f"killed: process {gone} is gone; last written ")
    assert words.endswith("seconds ago")


@pytest.mark.parametrize("facts", [{"host": "elsewhere", "process": 1}, {}])
def test_of_another_host_only_the_last_sign_of_life_is_known(tmp_path, facts):
    run = write_run(tmp_path)
    change_start(run, ended="", **facts)
    words = state(read_run(str(run)), time.time() + 7200)
    assert words.startswith("no end recorded; last written 2 hours ago on ")


def test_a_run_of_two_starts_tells_both_and_adds_up_their_times(tmp_path):
    seconds = {"training": 80.0, "saving": 5.0}
    starts = [
        start(BEGUN, 100, ended="stopped by SIGTERM after step 200", step=200, seconds=seconds),
        start(BEGUN + 5000, 120, ended="done: step 400", from_step=200, step=400, seconds=seconds),
    ]
    cells = overview(read_run(str(write_run(tmp_path, starts=starts))))
    assert cells["starts"] == "2"
    assert cells["state"] == "done: step 400"
    assert cells["time"] == "3:40: training 73%, saving 5%"  # 160 and 10 of 220 s


def test_a_run_that_has_not_come_to_a_step_is_told_too(tmp_path):
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
    """T2T's own: `transformer_test`, trained for one step."""
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
    assert ["optimizer_adam_beta2", "0.997", "0.98"] in told([run])[
        "settings that differ from transformer_test"
    ]


def test_curves_of_t2t(tmp_path):
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


def test_figures_of_test_are_told(tmp_path):
    run = write_run(tmp_path)
    write_events(events_file(run / "eval_test", 1), [(400, 1, {"loss": 1.75, "bleu": 28.5})])
    cells = overview(read_run(str(run)))
    assert cells["test BLEU"] == "28.50 at step 400"
    assert cells["test loss"] == "1.7500 at step 400"


def test_averages_are_not_taken_for_the_run_they_came_from(tmp_path):
    run = write_run(tmp_path / "run")
    prefixes = [str(run / f"model.ckpt-{step}") for step in (200, 400)]
    checkpoints.average(prefixes, str(tmp_path / "averaged" / "model.ckpt"))
    read = read_run(str(tmp_path / "averaged"))
    cells = overview(read)
    assert state(read, NOW) == f"averages of checkpoints of {run}"
    assert cells["checkpoints"].startswith("1; newest model.ckpt, ")
    assert not {"step", "starts", "time"} & cells.keys()


def test_checkpoints_alone(tmp_path):
    run = write_run(tmp_path / "run")
    for path in (run / "model.ckpt-200").parent.glob("model.ckpt-200.*"):
        shutil.copy(path, tmp_path)
    read = read_run(str(tmp_path))
    assert state(read, NOW) == "checkpoints without a record of their training"
    assert (read.step, read.hparams) == (200, None)


def test_a_set_that_is_not_known_here_is_said_so(tmp_path):
    run = write_run(tmp_path)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "hparams_set": "my_tiny"}))
    title = (
        "settings that differ from transformer_base_v1 (my_tiny is not known here: --t2t_usr_dir)"
    )
    assert title in told([read_run(str(run))])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("absent", "absent does not exist: name the --output_dir of a training."),
        (".", "holds no run: .* There is one in .*run."),
        ("run/best", "run/best is not a directory: name that of the run, .*run."),
        ("run/model.ckpt-200", "is not a directory: name that of the run, .*run."),
        ("empty", "empty holds no run: it has no run.json, checkpoint or event file"),
        ("damaged", "damaged/run.json is not JSON"),
    ],
)
def test_a_directory_without_a_run_is_said_in_a_line(tmp_path, named, message):
    write_run(tmp_path / "run")
    for name in ("empty", "damaged"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / "run.json").write_text('{"starts": [')
    with pytest.raises(UserError, match=message) as raised:
        read_run(os.path.join(tmp_path, named))
    assert "\n" not in str(raised.value)


# Several


def test_several_stand_side_by_side(two):
    rows = told(two)
    cells = {row[0]: row[1:] for row in rows[""]}
    assert cells["best dev loss"] == ["2.0000 at step 400", "1.0000 at step 400"]
    assert rows["settings that differ"][-2:] == [
        ["hidden_size", "64", "32"],
        ["num_heads", "4", "2"],
    ]
    small, large = rows["dev loss, nats per target token"]
    assert small[1:] == [
        "first 3.000 at step 200, last 2.000 at step 400, best 2.000 at step 400",
        two[0].directory,
    ]
    assert small[0][0] == "█" and large[0][-1] == "▁"  # 3 and 1, on one scale
    assert large[0][0] == "▃"  # 1.5


def test_a_run_without_settings_leaves_the_comparison_to_the_others(two, tmp_path):
    write_events(events_file(tmp_path, 1), [(1, 1, {"loss": 3.0})])
    rows = told([*two, read_run(str(tmp_path))])["settings that differ"]
    assert rows[-2:] == [["hidden_size", "64", "32", "-"], ["num_heads", "4", "2", "-"]]


def test_tables_are_no_wider_than_a_terminal(two):
    lines = run_summary(two, NOW)
    assert max(map(len, lines[: lines.index("")])) <= 100
