"""Several replicas and several hosts: the same weights as from one device on the joined batch."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
import toy

from t2t_keras import checkpoints
from t2t_keras.checkpoints.t2t import step_in_name
from t2t_keras.errors import UserError
from t2t_keras.training.engine import distribution

SCRIPT = Path(__file__).with_name("replicas.py")


def start(*arguments, **environment):
    return toy.start([*map(str, arguments)], env={**os.environ, **environment})


def results(processes, paths):
    for done in [process.end() for process in processes]:
        assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in paths]


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    path = tmp_path_factory.mktemp("mirrored") / "figures.json"
    (figures,) = results([start(SCRIPT, "mirrored", path)], [path])
    return figures


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    paths = [folder / f"{i}.json" for i in range(2)]
    pairs = zip(paths, configurations(), strict=True)
    command = (SCRIPT, "multi_worker")
    return results([start(*command, path, TF_CONFIG=place) for path, place in pairs], paths)


def configurations():
    """TF_CONFIG of each of two hosts, which are both this one."""
    sockets = socket.socket(), socket.socket()
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    tasks = [{"type": "worker", "index": i} for i in (0, 1)]
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]


def assert_alike(figures, steps):
    assert (figures["replicas"], figures["step"]) == (2, steps)
    assert figures["same start"] and figures["moved"] > 0.01
    assert max(figures["difference"], figures["average difference"]) < 1e-6
    assert figures["disagreement"] == 0
    theirs, ours = figures["totals"]
    assert theirs == pytest.approx(ours, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "steps"), [("plain", 3), ("accumulated", 7), ("joined", 3), ("classifier", 2)]
)
def test_two_replicas_train_as_one_device_does(mirrored, name, steps):
    """With decay, clipping, XLA, rematerialised layers, a moving average and most optimizers."""
    assert_alike(mirrored[name], steps)


def test_fit_on_two_replicas_learns_as_on_one(mirrored):
    figures = mirrored["fit"]
    assert figures["difference"] < 1e-5
    assert figures["figures"][1] == pytest.approx(figures["figures"][0], rel=1e-5)
    assert "prepare_fit" in figures["complaints"][0]
    assert "leave clipping out" in figures["complaints"][1]


def test_every_replica_has_its_own_dropout(mirrored):
    first, second = mirrored["masks"]["dropout"]
    assert abs(first - second) > 0.01
    first, second = mirrored["masks"]["none"]
    assert first == second


def test_two_replicas_go_on_between_two_updates(mirrored):
    figures = mirrored["interrupted"]
    assert figures["steps"] == [10, 10]
    assert figures["between updates"]
    assert max(figures["difference"], figures["accumulated"]) < 1e-6


def test_two_hosts_train_as_one_device_does(hosts):
    for figures in hosts:
        assert figures["plain"]["hosts"] == 2
        assert_alike(figures["plain"], steps=7)
    assert len({figures["plain"]["checksum"] for figures in hosts}) == 1


def train_on_hosts(folder, steps):
    """A run of the toy on two hosts, saved at every tenth step."""
    hp = toy.hparams(num_hidden_layers=1, hidden_size=16, filter_size=16)
    command = (
        *("t2t-keras-train", f"--problem={toy.PROBLEM}", f"--hparams={hp}"),
        *(f"--data_dir={folder / 'data'}", f"--output_dir={folder / 'run'}"),
        *("--local_eval_frequency=10", "--eval_steps=1", f"--train_steps={steps}"),
        "--decode_hparams=beam_size=1,extra_length=1",
    )
    return [start(*command, TF_CONFIG=place) for place in configurations()]


def test_a_host_that_is_killed_ends_the_other_in_a_line_and_both_go_on(tmp_path):
    toy.generate(tmp_path)
    hosts = train_on_hosts(tmp_path, 100_000)
    saved = tmp_path / "run" / "model.ckpt-20.index"
    while not saved.exists() and hosts[0].process.is_alive():
        time.sleep(0.05)
    hosts[1].process.kill()  # by SIGKILL
    hosts[1].end()
    said = toy.complaint(hosts[0].end())
    assert "another host of this run has ended or cannot be reached: start all hosts again" in said
    step = step_in_name(checkpoints.resolve(str(tmp_path / "run")))
    results(train_on_hosts(tmp_path, step + 10), [])
    assert step_in_name(checkpoints.resolve(str(tmp_path / "run"))) == step + 10


def test_unknown_kind():
    with pytest.raises(
        UserError, match=r"distribute must be one of auto, none, .*'miror'. Did you mean 'mirrored'"
    ):
        distribution("miror")


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_hosts_need_to_know_each_other(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UserError, match="needs the environment variable TF_CONFIG on every host"):
        distribution("multi_worker")


def test_one_device_needs_no_strategy(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for kind in ("auto", "none"):
        assert distribution(kind)[1:] == (1, 1, 0)
