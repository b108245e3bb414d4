"""What several hosts of one run must decide alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from t2t_keras.training.early_stopping import METRICS


class Hosts:
    """Exchanges a few numbers among the hosts; every host must make the same calls.

    Args:
        engine: the `Engine`, with its strategy.
    """

    def __init__(self, engine):
        self._engine = engine
        self._sum_of_hosts = tf.function(self._exchange)

    def agree(self, chief: Sequence[float], any_host: Sequence[float]) -> list[int]:
        """Returns the first host's `chief`, then 1 or 0 for each of `any_host` that some host has."""
        ours = [*(chief if self._engine.is_chief else [0.0] * len(chief)), *any_host]
        sums = self._sum([float(value) for value in ours])
        return [int(x) for x in sums[: len(chief)]] + [int(x > 0) for x in sums[len(chief) :]]

    def figures(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Returns the figures of an evaluation that the first host made, on every host."""
        if self._engine.hosts == 1:
            return dict(figures)
        there = self._sum([float(name in figures) for name in METRICS])
        values = self._sum([float(figures.get(name, 0.0)) for name in METRICS])
        if self._engine.is_chief:  # which alone has a figure of the problem's own
            return dict(figures)
        return {name: value for name, value, has in zip(METRICS, values, there, strict=True) if has}

    def _sum(self, values: list[float]) -> list[float]:
        """The sums over all hosts."""
        if self._engine.hosts == 1:
            return values
        return [float(x) for x in self._sum_of_hosts(tf.constant(values, tf.float64))]

    def _exchange(self, values: tf.Tensor) -> tf.Tensor:
        strategy = self._engine.strategy
        local = self._engine.replicas // self._engine.hosts

        def of_replicas(values):
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group % local == 0
            return context.all_reduce("SUM", tf.where(first, values, tf.zeros_like(values)))

        summed = strategy.run(of_replicas, args=(values,))
        return strategy.experimental_local_results(summed)[0]
