"""Several replicas and several hosts: the same weights as from one device on the joined batch."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
import toy

from t2t_keras.errors import UserError
from t2t_keras.training.distribution import distribution

SCRIPT = Path(__file__).with_name("replicas.py")


def start(kind, path, **environment):
    return subprocess.Popen(
        [toy.programs() / "python", SCRIPT, kind, path],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(processes, paths):
    for process in processes:
        _, complaints = process.communicate(timeout=600)
        assert process.returncode == 0, complaints[-3000:]
    return [json.loads(path.read_text()) for path in paths]


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    path = tmp_path_factory.mktemp("mirrored") / "figures.json"
    (figures,) = results([start("mirrored", path)], [path])
    return figures


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    paths = [folder / f"{i}.json" for i in range(2)]
    processes = [
        start(
            "multi_worker",
            path,
            TF_CONFIG=json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            ),
        )
        for i, path in enumerate(paths)
    ]
    return results(processes, paths)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def assert_alike(figures, steps):
    assert figures["replicas"] == 2
    assert figures["step"] == steps
    assert figures["same start"]
    assert figures["moved"] > 0.01
    assert figures["difference"] < 1e-6
    assert figures["average difference"] < 1e-6
    assert figures["disagreement"] == 0
    theirs, ours = figures["totals"]
    assert theirs == pytest.approx(ours, rel=1e-6)


def test_two_replicas_train_as_one_device_does(mirrored):
    """With XLA, decay, clipping and a moving average; the halves of a batch differ in tokens."""
    assert_alike(mirrored["plain"], steps=3)


def test_two_replicas_accumulate_as_one_device_does(mirrored):
    """With rematerialised layers, decay and clipping, and Adam at every third batch."""
    assert_alike(mirrored["accumulated"], steps=7)


def test_two_replicas_join_batches_as_one_device_does(mirrored):
    assert_alike(mirrored["joined"], steps=3)


def test_every_replica_has_its_own_dropout(mirrored):
    first, second = mirrored["masks"]["dropout"]
    assert abs(first - second) > 0.01
    first, second = mirrored["masks"]["none"]
    assert first == second


def test_two_replicas_go_on_between_two_updates(mirrored):
    figures = mirrored["interrupted"]
    assert figures["steps"] == [10, 10]
    assert figures["between updates"]
    assert figures["difference"] < 1e-6
    assert figures["accumulated"] < 1e-6


def test_two_hosts_train_as_one_device_does(hosts):
    for figures in hosts:
        assert figures["plain"]["hosts"] == 2
        assert_alike(figures["plain"], steps=7)
    first, second = (figures["plain"]["checksum"] for figures in hosts)
    assert first == second


def test_unknown_kind():
    with pytest.raises(UserError, match=r"distribute is 'miror'.*mirrored.*Allowed: auto, none"):
        distribution("miror")


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
    ],
)
def test_hosts_need_to_know_each_other(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UserError, match="needs the environment variable TF_CONFIG on every host"):
        distribution("multi_worker")


def test_one_device_needs_no_strategy(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for kind in ("auto", "none"):
        place = distribution(kind)
        assert place[1:] == (1, 1, 0)
        assert place.is_chief
        assert place.local_replicas == 1
