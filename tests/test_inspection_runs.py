"""What is read of runs, and told of them as text."""

import json
import os
import re
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
from t2t_keras.inspection.run_curves import best, thinned
from t2t_keras.inspection.run_tables import evaluations, names, seconds_by_phase, state, tables
from t2t_keras.inspection.run_text import run_text
from t2t_keras.inspection.runs import Point, read_run
from t2t_keras.inspection.text_chart import text_chart

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
    """The rows of the text, by title of the table, split where there are two spaces."""
    found, title = {}, ""
    for line in run_text(runs, NOW):
        if line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
        elif line.startswith("  "):
            cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
            found.setdefault(title, []).append(cells)
    return found


def ran(directory, command="import os; print(os.getpid())"):
    """The number of a process that has ended."""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    return int(done.stdout)


# One run


def test_tells_of_a_run_that_has_ended(two):
    rows = told(two[:1])
    overview = {row[0]: row[1:] for row in rows[""]}
    assert overview["state"] == ["done: step 400"]
    assert overview["step"] == ["400 of 400"]
    assert overview["problem"] == ["translate_ende_multi30k"]
    assert overview["parameters"] == ["12,345"]
    assert overview["best loss on dev"] == ["2.0000 at step 400"]
    assert overview["best BLEU on dev"] == ["30.00 at step 400"]
    assert overview["best accuracy on dev"] == ["0.5000 at step 200"]  # the first of equals
    assert overview["steps a second"] == ["2.00"]
    assert "tokens a second" not in overview
    assert rows["settings that differ from transformer_tiny"] == [
        ["the set", "this run"],
        ["hidden_size", "128", "64"],
    ]
    assert rows["time"] == [
        ["training", "10:00", "60%"],
        ["first step, which compiles", "0:50", "5%"],
        ["evaluation", "4:10", "25%"],
        ["all else", "1:40", "10%"],
        ["together", "16:40"],
    ]
    assert ["versions", "keras 3.15.1"] in rows["started with"]
    assert rows["command"] == [["t2t-keras-train --train_steps=400"]]
    assert rows["starts"][1:] == [["2027-01-15 08:00", "0", "400", "16:40", "done: step 400"]]
    assert [row[0] for row in rows["checkpoints"][1:]] == ["model.ckpt-200", "model.ckpt-400"]
    assert rows["checkpoints"][2][-1] == "best on dev"


def test_tells_where_curves_begin_and_end_and_draws_them(two):
    lines = run_text(two[:1], NOW)
    words = "  first 8.000 at step 100, last 1.000 at step 400, best 1.000 at step 400"
    place = lines.index("loss of training, nats a target token")
    assert lines[place + 1].startswith("8.000 |*") and lines[place + 11] == words
    assert lines[place + 8].startswith("1.000 |") and lines[place + 8].endswith("*")
    assert lines[place + 10].split() == ["100", "400"]
    assert "  first 1.00e-03 at step 100, last 1.00e-03 at step 400" in lines
    assert "steps a second, mean since a start" not in lines  # of which the overview tells


def test_tells_the_size_and_age_of_checkpoints(tmp_path):
    run = write_run(tmp_path / "run")
    for suffix in (".index", ".data-00000-of-00001"):
        os.utime(run / f"model.ckpt-200{suffix}", (NOW - 5400, NOW - 5400))
    with open(run / "model.ckpt-200.data-00000-of-00001", "ab") as file:
        file.write(bytes(2_000_000))
    row = told([read_run(str(run))])["checkpoints"][1]
    assert row == ["model.ckpt-200", "2.0 MB", "90 minutes ago"]


def test_evaluations_are_a_table(two):
    table = evaluations(two[0])
    assert table.head == ["step", "loss", "accuracy", "BLEU"]
    assert table.rows == [
        ["200", "3.0000", "0.5000", "10.00"],
        ["400", "2.0000", "0.5000", "30.00"],
    ]


def test_hours_leave_out_what_lies_between_starts(tmp_path):
    """Two starts of 360 s with a day between, and a point every 180 s."""
    run = write_run(tmp_path, starts=[start(BEGUN, 360), start(BEGUN + 86400, 360)])
    for path in run.glob("events.*"):
        path.unlink()
    for begun, first in ((BEGUN, 1), (BEGUN + 86400, 3)):
        points = [(100 * (first + i), begun + 180 * (i + 1), {"loss": 1.0}) for i in (0, 1)]
        write_events(events_file(run, begun), points)
    read = read_run(str(run))
    assert [p.hours for p in read.training["loss"]] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    assert [p.hours for p in read.dev["bleu"]] == pytest.approx([0.1, 0.2])
    assert [p.step for p in read.dev["bleu"]] == [200, 400]


# How it goes


def test_a_run_in_progress_tells_how_long_it_takes_yet(tmp_path):
    run = write_run(tmp_path)
    change_start(run, ended="", process=os.getpid(), train_steps=1000)
    read = read_run(str(run))
    words = f"running as process {os.getpid()}, 5:00 of training left"
    assert state(read, NOW) == words  # 600 steps, 2 a second
    assert told([read])["starts"][1][-1] == "running"


def test_a_run_that_was_killed_is_not_taken_for_one_in_progress(tmp_path):
    run = write_run(tmp_path)
    gone = ran(tmp_path)
    change_start(run, ended="", process=gone)
    read = read_run(str(run))
    assert told([read])["starts"][1][-1] == "not recorded"
    words = state(read, time.time())
    assert words.startswith(f"ended without a word, perhaps killed: process {gone} is gone; ")
    assert words.endswith("seconds ago")


@pytest.mark.parametrize("facts", [{"host": "elsewhere", "process": 1}, {}])
def test_of_another_host_only_the_last_sign_of_life_is_known(tmp_path, facts):
    run = write_run(tmp_path)
    change_start(run, ended="", **facts)
    words = state(read_run(str(run)), time.time() + 7200)
    assert words.startswith("no end is recorded; last written 2 hours ago on ")


def test_a_run_of_two_starts_tells_both_and_adds_up_their_times(tmp_path):
    seconds = {"training": 80.0, "saving": 5.0}
    starts = [
        start(BEGUN, 100, ended="stopped by SIGTERM after step 200", step=200, seconds=seconds),
        start(BEGUN + 5000, 120, ended="done: step 400", from_step=200, step=400, seconds=seconds),
    ]
    run = read_run(str(write_run(tmp_path, starts=starts)))
    assert seconds_by_phase(run) == {"training": 160, "saving checkpoints": 10, "all else": 50}
    assert [row[1:] for row in told([run])["starts"][1:]] == [
        ["0", "200", "1:40", "stopped by SIGTERM after step 200"],
        ["200", "400", "2:00", "done: step 400"],
    ]


def test_a_run_that_has_not_come_to_a_step_is_told_too(tmp_path):
    run = write_run(tmp_path, starts=[start(BEGUN, 0, ended="", process=os.getpid())])
    for path in run.iterdir():
        if path.name not in ("run.json", "hparams.json"):
            path.unlink()
    (run / f"events.out.tfevents.{BEGUN}.vm.1.0.v2").touch()
    read = read_run(str(run))
    assert {row[0]: row[1] for row in told([read])[""]}["step"] == "0 of 400"
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
    rows = told([run])
    overview = {row[0]: row[1] for row in rows[""]}
    assert overview["state"].startswith("a run of tensor2tensor, last written ")
    assert overview["problem"] == "translate_ende_wmt8k"
    assert overview["step"] == "1 of 1"
    assert ["optimizer_adam_beta2", "0.997", "0.98"] in rows[
        "settings that differ from transformer_test"
    ]
    variables = checkpoints.read(run.directory)
    model = [v for n, v in variables.items() if re.fullmatch(r"transformer/.*(?<!/Adam)(?<!_1)", n)]
    assert run.parameters == sum(np.size(array) for array in model)


def test_curves_of_t2t(tmp_path):
    write_events(events_file(tmp_path, 1), [(s, s, {"loss": 9 / s}) for s in (1, 2, 3)])
    metrics = {"neg_log_perplexity": -4.5, "accuracy": 0.25, "approx_bleu_score": 0.125}
    tags = {f"metrics-translate_ende_wmt32k/targets/{n}": v for n, v in metrics.items()}
    write_events(events_file(tmp_path / "eval", 1), [(2, 2, {**tags, "loss": 7.0})])
    run = read_run(str(tmp_path))
    assert {name: [(p.step, p.value) for p in curve] for name, curve in run.dev.items()} == {
        "loss": [(2, 4.5)],
        "accuracy": [(2, 0.25)],
        "approx_bleu": [(2, 12.5)],
    }
    assert run.dev["loss"][0].hours == pytest.approx(1 / 3600)
    assert "  4.500 at step 2" in run_text([run], NOW)


def test_figures_of_test_are_told(tmp_path):
    run = write_run(tmp_path)
    write_events(events_file(run / "eval_test", 1), [(400, 1, {"loss": 1.75, "bleu": 28.5})])
    overview = told([read_run(str(run))])[""]
    assert ["BLEU on test", "28.50 at step 400"] in overview
    assert ["loss on test", "1.7500 at step 400"] in overview


def test_averages_are_not_taken_for_the_run_they_came_from(tmp_path):
    run = write_run(tmp_path / "run")
    prefixes = [str(run / f"model.ckpt-{step}") for step in (200, 400)]
    checkpoints.average(prefixes, str(tmp_path / "averaged" / "model.ckpt"))
    read = read_run(str(tmp_path / "averaged"))
    rows = told([read])
    assert state(read, NOW) == f"averages of checkpoints of {run}"
    assert "step" not in [row[0] for row in rows[""]]
    assert [row[0] for row in rows["checkpoints"][1:]] == ["model.ckpt"]
    assert "starts" not in rows and "time" not in rows


def test_checkpoints_alone(tmp_path):
    run = write_run(tmp_path / "run")
    for path in (run / "model.ckpt-200").parent.glob("model.ckpt-200.*"):
        shutil.copy(path, tmp_path)
    read = read_run(str(tmp_path))
    assert state(read, NOW) == "checkpoints, without a record of their training"
    assert (read.step, read.parameters, read.hparams) == (200, 15, None)


def test_a_set_that_is_not_known_here_is_said_so(tmp_path):
    run = write_run(tmp_path)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "hparams_set": "my_tiny"}))
    titles = [table.title for table in tables([read_run(str(run))], NOW)]
    title = (
        "settings that differ from transformer_base_v1 (my_tiny is not known here: --t2t_usr_dir)"
    )
    assert title in titles


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("absent", "absent does not exist: name the --output_dir of a training."),
        (".", "holds no run: .* There is one in .*run."),
        ("run/best", "run/best is no directory: name that of the run, such as .*run."),
        ("run/model.ckpt-200", "is no directory: name that of the run, such as .*run."),
        ("empty", "empty holds no run: there is neither run.json nor a checkpoint"),
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
    assert rows[""][0] == ["small", "large"]
    overview = {row[0]: row[1:] for row in rows[""]}
    assert overview["best loss on dev"] == ["2.0000 at step 400", "1.0000 at step 400"]
    assert rows["settings that differ"] == [
        ["small", "large"],
        ["hidden_size", "64", "32"],
        ["num_heads", "4", "2"],
    ]
    assert ["training", "10:00", "60%", "-"] in rows["time"]
    assert {"starts of small", "starts of large", "checkpoints of large"} <= rows.keys()


def test_curves_of_several_are_drawn_on_one_grid(two):
    lines = run_text(two, NOW)
    place = lines.index("loss on dev, nats a target token")
    assert lines[place + 1].startswith("3.000 |1")
    assert lines[place + 8].startswith("1.000 |") and lines[place + 8].endswith("2")
    assert lines[place + 11].startswith("  1 small: first 3.000 at step 200, last 2.000")
    assert lines[place + 12].startswith("  2 large: first 1.500 at step 200, last 1.000")


def test_a_run_without_settings_leaves_the_comparison_to_the_others(two, tmp_path):
    write_events(events_file(tmp_path, 1), [(1, 1, {"loss": 3.0})])
    rows = told([*two, read_run(str(tmp_path))])
    assert ["hidden_size", "64", "32", "-"] in rows["settings that differ"]
    assert len(rows["settings that differ"]) == 3


def test_names_are_as_long_as_tells_runs_apart(tmp_path):
    places = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c"]
    runs = [read_run(str(write_run(place))) for place in places]
    assert names(runs[1:]) == ["run", "c"]
    assert names(runs[:2]) == ["a/run", "b/run"]


def test_no_line_is_wider_than_a_terminal_but_commands(two):
    lines = run_text(two, NOW)
    assert max(len(line) for line in lines) <= 110


# Curves


def test_draws_curves_by_hand():
    assert text_chart([[(0, 0.0), (3, 3.0)]], ".0f", width=4, height=4) == [
        "3 |   *",
        "  |  *",
        "  | *",
        "0 |*",
        "  +----",
        "   0  3",
    ]
    both = [[(0, 1.0), (2, 1.0)], [(1, 3.0), (2, 1.0), (3, float("nan"))]]
    assert text_chart(both, ".1f", width=3, height=3)[:3] == ["3.0 | 2", "    |", "1.0 |112"]
    assert text_chart([[(7, 1.0)], []], ".1f") == []


def test_what_is_no_number_is_not_the_best():
    curve = [Point(step, 0.0, value) for step, value in enumerate((float("nan"), 2.0, 1.0, 2.0))]
    assert best(curve, less_is_better=True).step == 2
    assert best(curve, less_is_better=False).step == 1
    assert best(curve[:1], less_is_better=True) is None


def test_a_curve_with_few_points_left_looks_the_same():
    random = np.random.default_rng(0)
    values = random.normal(size=5000)
    values[3333], values[1234] = 50.0, -50.0
    curve = [Point(step, step / 10, float(value)) for step, value in enumerate(values)]
    few = thinned(curve)
    assert len(few) <= 602
    assert [p.step for p in few] == sorted(p.step for p in few)
    assert {curve[0], curve[-1], curve[3333], curve[1234]} <= {*few}
    assert thinned(curve[:600]) == curve[:600]
