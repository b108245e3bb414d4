"""The order of the data: the examples of batch number `step` depend only on the seed and the step.

So a run need not save its position in the data: batch 70,000 is the same whether the run starts there or
at 0. Permutations come from `numpy.random.RandomState`, whose number stream NumPy guarantees not to change.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from t2t_keras.data.buckets import Buckets

_ORDER_OF_BATCHES = 0  # part of the seed of a permutation; bucket k uses 1 + k


class Batch(NamedTuple):
    """The bucket and the example numbers of a batch, before its examples are read."""

    bucket: int
    rows: np.ndarray  # example numbers: [B] uint32


class Plan:
    """Base class of plans: assigns examples to buckets and permutes them.

    Args:
        lengths: the length of each example: [N] integers.
        buckets: K buckets; examples whose length is not kept are in no batch.
        seed: the seed of all permutations.
        shuffle: True: permute the examples in each epoch; False: keep their order.
        mix: True: permute the batches of each epoch; False: order them by when they are full.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        self.members = _members(buckets.of(lengths), len(buckets.edges))
        """The examples of each bucket, in ascending order: K arrays [n_k] uint32."""
        self.examples = sum(len(rows) for rows in self.members)
        self.sizes = np.array(buckets.sizes, np.int64)
        self.seed = seed
        self.shuffle = shuffle
        self.mix = mix
        self._counts = np.array([len(rows) for rows in self.members], np.int64)

    def _random(self, epoch: int, purpose: int) -> np.random.RandomState:
        low, high = self.seed % 2**32, self.seed // 2**32 % 2**32
        return np.random.RandomState([low, high, epoch, purpose])

    def _permuted(self, bucket: int, epoch: int) -> np.ndarray:
        rows = self.members[bucket]
        if self.shuffle:
            rows = rows.copy()
            self._random(epoch, 1 + bucket).shuffle(rows)
        return rows


class EndlessPlan(Plan):
    """Endless batches for training, all full.

    Each bucket is an endless sequence of examples, one permutation of its members after another, cut
    into batches. The last batch of an epoch is filled up from the next epoch, so that no example is lost
    and none is repeated before all others have occurred. A batch belongs to the epoch that completes it. A
    bucket of n examples has completed (e + 1) n // size batches at the end of epoch e, so the epoch of a
    step can be computed without going through earlier ones.

    Memory: 4 bytes per example, and 4 more for the permutations of the current epoch.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        super().__init__(lengths, buckets, seed, shuffle, mix)
        self.batches_per_epoch = float(np.sum(self._counts / self.sizes))
        """The mean number of batches in an epoch."""
        self._lock = threading.Lock()
        self._epoch = _Epoch(0, 0, 0, np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._whole: dict[int, _Permutation] = {}
        self._tails: dict[int, _Permutation] = {}

    def batches_before(self, epoch: int) -> int:
        """Returns the number of batches in the epochs before this one."""
        return int(np.sum(epoch * self._counts // self.sizes))

    def epoch_of(self, step: int) -> int:
        """Returns the epoch, from 0, that completes batch number `step`, from 0."""
        # Each bucket is less than one batch behind the average.
        low = max(0, int(step / self.batches_per_epoch) - 1)
        high = int((step + len(self.members) + 1) / self.batches_per_epoch) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.batches_before(middle) > step:
                high = middle
            else:
                low = middle
        return low

    def batch(self, step: int) -> Batch:
        """Returns batch number `step`, from 0."""
        with self._lock:
            if not self._epoch.first <= step < self._epoch.end:
                self._epoch = self._order(self.epoch_of(step))
            place = step - self._epoch.first
            bucket, number = int(self._epoch.buckets[place]), int(self._epoch.numbers[place])
            return Batch(bucket, self._slice(bucket, number))

    def _order(self, epoch: int) -> _Epoch:
        """Returns the batches of an epoch in order."""
        filled = epoch * self._counts // self.sizes
        new = (epoch + 1) * self._counts // self.sizes - filled
        buckets = np.repeat(np.arange(len(new)), new)
        numbers = np.arange(new.sum()) + np.repeat(filled - (np.cumsum(new) - new), new)
        if self.mix:
            order = self._random(epoch, _ORDER_OF_BATCHES).permutation(len(buckets))
        else:
            last = (numbers + 1) * self.sizes[buckets] - 1 - epoch * self._counts[buckets]
            order = np.argsort(self._when(buckets, last), kind="stable")
        first = self.batches_before(epoch)
        return _Epoch(epoch, first, first + len(order), buckets[order], numbers[order])

    def _when(self, buckets: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Returns when, within an epoch, each bucket reaches the given place in its permutation."""
        if self.shuffle:
            return (places + 1) / self._counts[buckets]
        starts = np.cumsum(self._counts) - self._counts
        return np.concatenate(self.members)[starts[buckets] + places]

    def _slice(self, bucket: int, number: int) -> np.ndarray:
        """Returns batch `number` of a bucket: a slice of its sequence of permutations."""
        size, count = int(self.sizes[bucket]), int(self._counts[bucket])
        place, end, pieces = number * size, (number + 1) * size, []
        while place < end:
            epoch, start = divmod(place, count)
            stop = min(count, start + end - place)
            pieces.append(self._piece(bucket, epoch, start, stop))
            place += stop - start
        return np.concatenate(pieces)

    def _piece(self, bucket: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns a slice of one permutation; only the tail of the previous epoch's stays in memory."""
        count, size = int(self._counts[bucket]), int(self.sizes[bucket])
        whole, tail = self._whole.get(bucket), self._tails.get(bucket)
        if whole and whole.epoch == epoch:
            return whole.rows[start:stop]
        in_tail = start >= count - size
        if in_tail and tail and tail.epoch == epoch:
            return tail.rows[start - count : stop - count or None]
        new = _Permutation(epoch, self._permuted(bucket, epoch))
        if in_tail and epoch < self._epoch.number:
            self._tails[bucket] = new.end(size)
        else:
            if whole and whole.epoch == epoch - 1:
                self._tails[bucket] = whole.end(size)
            self._whole[bucket] = new
        return new.rows[start:stop]


class _Permutation(NamedTuple):
    epoch: int
    rows: np.ndarray

    def end(self, rows: int) -> _Permutation:
        return _Permutation(self.epoch, self.rows[-rows:].copy())


class _Epoch(NamedTuple):
    number: int
    first: int  # the step of its first batch
    end: int  # the step after its last batch
    buckets: np.ndarray  # the bucket of each batch
    numbers: np.ndarray  # the number of each batch within its bucket


class OncePlan(Plan):
    """Batches for evaluation: every example is in exactly one batch; incomplete batches are kept.

    Incomplete batches come last, in order of length, unless `mix` permutes the batches.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        super().__init__(lengths, buckets, seed, shuffle, mix)
        full, partial = [], []
        for bucket, size in enumerate(buckets.sizes):
            rows = self._permuted(bucket, 0)
            pieces = [Batch(bucket, rows[i : i + size]) for i in range(0, len(rows), size)]
            if pieces and len(pieces[-1].rows) < size:
                partial.append(pieces.pop())
            full += pieces
        if not self.shuffle:
            full.sort(key=lambda batch: int(batch.rows[-1]))
        self._batches = full + partial
        if self.mix:
            order = self._random(0, _ORDER_OF_BATCHES).permutation(len(self._batches))
            self._batches = [self._batches[i] for i in order]

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, step: int) -> Batch:
        """Returns batch number `step`, 0 <= step < len(self)."""
        return self._batches[step]


def _members(buckets: np.ndarray, number: int) -> list[np.ndarray]:
    """Returns the examples of buckets 0 to `number` - 1: arrays [n] uint32."""
    order = np.argsort(buckets, kind="stable").astype(np.uint32)
    ends = np.cumsum(np.bincount(buckets + 1, minlength=number + 1))
    return [order[ends[k] : ends[k + 1]] for k in range(number)]
