"""Training on several devices and hosts (T2T's `--worker_gpu` and `--schedule`) with tf.distribute."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.errors import UserError, nearest
from t2t_keras.training.evaluation import METRICS

KINDS = ("auto", "none", "mirrored", "multi_worker")


class Distribution(NamedTuple):
    """A strategy, and which of its hosts this program is."""

    strategy: tf.distribute.Strategy
    replicas: int  # on all hosts; each computes its rows of every batch
    hosts: int  # programs that train together
    host: int  # which of them this one is, from 0

    @property
    def local_replicas(self) -> int:
        return self.replicas // self.hosts

    @property
    def is_chief(self) -> bool:
        """True on the host that writes the files of the run."""
        return self.host == 0


def distribution(kind: str = "auto") -> Distribution:
    """Creates the strategy of a kind.

    "mirrored" uses all devices of this host: its GPUs or, without any, its CPUs (several if
    TensorFlow is configured so). "multi_worker" uses those of all hosts that the environment
    variable TF_CONFIG lists; TensorFlow must not have been used before. "auto" is "multi_worker" if
    TF_CONFIG is set, else "mirrored" if there are several devices, else "none".
    """
    if kind not in KINDS:
        raise UserError(
            f"distribute is {kind!r}.{nearest(kind, KINDS)} Allowed: {', '.join(KINDS)}."
        )
    if kind == "auto" and os.environ.get("TF_CONFIG"):
        kind = "multi_worker"
    if kind == "multi_worker":
        return _multi_worker()
    if kind == "none":
        return Distribution(tf.distribute.get_strategy(), 1, 1, 0)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if kind == "auto" and len(devices) == 1:
        return Distribution(tf.distribute.get_strategy(), 1, 1, 0)
    strategy = _mirrored(tuple(device.name for device in devices))
    return Distribution(strategy, len(devices), 1, 0)


@functools.cache  # two strategies in one process would use the same message numbers
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(devices)


@functools.cache
def _multi_worker() -> Distribution:
    hosts, host = _hosts(os.environ.get("TF_CONFIG", ""))
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise UserError(f"the hosts of TF_CONFIG cannot train together: {error}") from error
    return Distribution(strategy, strategy.num_replicas_in_sync, hosts, host)


def _hosts(config: str) -> tuple[int, int]:
    """Returns how many hosts TF_CONFIG lists, and which one this is; a chief is the first."""
    try:
        read = json.loads(config)
        cluster, task = read["cluster"], read["task"]
        place = [
            (kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, ())))
        ]
        return len(place), place.index((task["type"], int(task["index"])))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            "distribute=multi_worker needs the environment variable TF_CONFIG on every host, like "
            '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
            '"task": {"type": "worker", "index": 0}}; '
            f"got {config or 'nothing'}."
        ) from None


def device_names() -> list[str]:
    """Returns the names of the devices of this host: its GPUs or, without any, its processor."""
    devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
    return [
        tf.config.experimental.get_device_details(device).get("device_name", device.device_type)
        for device in devices
    ]


# Agreement of several hosts


class Hosts:
    """Exchanges a few numbers between the hosts of a run; every host must make the same calls."""

    def __init__(self, engine):
        self._engine = engine
        self._sum_of_hosts = tf.function(self._exchange)

    def agree(self, chief: Sequence[float], any_host: Sequence[float]) -> list[int]:
        """Returns `chief` of the first host, then for each of `any_host` 1 if it is set on any host."""
        ours = [*(chief if self._engine.is_chief else [0.0] * len(chief)), *any_host]
        sums = self._sum([float(value) for value in ours])
        return [int(x) for x in sums[: len(chief)]] + [int(x > 0) for x in sums[len(chief) :]]

    def figures(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Returns the first host's evaluation metrics on every host."""
        if self._engine.hosts == 1:
            return dict(figures)
        present = self._sum([float(name in figures) for name in METRICS])
        values = self._sum([float(figures.get(name, 0.0)) for name in METRICS])
        if self._engine.is_chief:  # only the chief has metrics of the problem itself
            return dict(figures)
        return {
            name: value for name, value, has in zip(METRICS, values, present, strict=True) if has
        }

    def _sum(self, values: list[float]) -> list[float]:
        if self._engine.hosts == 1:
            return values
        return [float(x) for x in self._sum_of_hosts(tf.constant(values, tf.float64))]

    def _exchange(self, values: tf.Tensor) -> tf.Tensor:
        strategy = self._engine.strategy
        local = self._engine.replicas // self._engine.hosts

        def first_replica_of_each_host(values):
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group % local == 0
            return context.all_reduce("SUM", tf.where(first, values, tf.zeros_like(values)))

        summed = strategy.run(first_replica_of_each_host, args=(values,))
        return strategy.experimental_local_results(summed)[0]
