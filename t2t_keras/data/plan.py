"""Which examples make batch number `step`: a function of the seed and the step alone.

Nothing but arithmetic and NumPy, so the place of a run in its data needs no saving: batch 70,000 of a
run that starts there is batch 70,000 of one that came to it. Permutations are drawn by
`numpy.random.RandomState`, whose numbers NumPy has promised not to change.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from t2t_keras.data.buckets import Buckets

_MIXING_BATCHES = 0  # what a permutation is for, as part of its seed; buckets count from 1


class Batch(NamedTuple):
    """A batch before it is read."""

    bucket: int
    """All of its examples belong to it."""
    rows: np.ndarray
    """The numbers of its examples: [B] uint32."""


class Plan:
    """What both plans share: the examples of each bucket, and random numbers.

    Args:
        lengths: what decides an example's bucket: [N] integers.
        buckets: K buckets; an example whose length is not kept is in no batch.
        seed: of all permutations.
        shuffle: permute examples in each epoch; otherwise they come in their order.
        mix: permute the batches of each epoch; otherwise they come in the order in which they fill.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        self.members = _members(buckets.of(lengths), len(buckets.edges))
        """The examples of each bucket in their order: K arrays [n_k] uint32."""
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
    """Batches for training: all full, without an end.

    Each bucket is an endless row of examples, one permutation of its members after the other, cut
    into batches: the last of an epoch takes what it lacks from the next one, so that no example is
    lost and none comes again before the others have come. To epoch e belong the batches that its
    examples fill. A bucket of n examples has filled (e + 1) n // size batches at the end of epoch
    e, which is how a step's epoch is found without going through those before.

    In memory are 4 bytes an example, and 4 more for the permutations of the present epoch.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        super().__init__(lengths, buckets, seed, shuffle, mix)
        self.batches_per_epoch = float(np.sum(self._counts / self.sizes))
        """How many there are on the average."""
        self._lock = threading.Lock()
        self._epoch = _Epoch(0, 0, 0, np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._whole: dict[int, _Permutation] = {}
        self._tails: dict[int, _Permutation] = {}

    def batches_before(self, epoch: int) -> int:
        """Returns how many batches the epochs before this one make."""
        return int(np.sum(epoch * self._counts // self.sizes))

    def epoch_of(self, step: int) -> int:
        """Returns the epoch, from 0, that fills batch number `step`, from 0."""
        # Each bucket lags behind the average by less than one batch.
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
        """The batches of an epoch in the order in which they come."""
        filled = epoch * self._counts // self.sizes
        new = (epoch + 1) * self._counts // self.sizes - filled
        buckets = np.repeat(np.arange(len(new)), new)
        numbers = np.arange(new.sum()) + np.repeat(filled - (np.cumsum(new) - new), new)
        if self.mix:
            order = self._random(epoch, _MIXING_BATCHES).permutation(len(buckets))
        else:
            last = (numbers + 1) * self.sizes[buckets] - 1 - epoch * self._counts[buckets]
            order = np.argsort(self._when(buckets, last), kind="stable")
        first = self.batches_before(epoch)
        return _Epoch(epoch, first, first + len(order), buckets[order], numbers[order])

    def _when(self, buckets: np.ndarray, places: np.ndarray) -> np.ndarray:
        """When, within an epoch, each bucket comes to a place of its permutation."""
        if self.shuffle:
            return (places + 1) / self._counts[buckets]
        starts = np.cumsum(self._counts) - self._counts
        return np.concatenate(self.members)[starts[buckets] + places]

    def _slice(self, bucket: int, number: int) -> np.ndarray:
        """Batch `number` of a bucket: a slice of its row of permutations."""
        size, count = int(self.sizes[bucket]), int(self._counts[bucket])
        place, end, pieces = number * size, (number + 1) * size, []
        while place < end:
            epoch, start = divmod(place, count)
            stop = min(count, start + end - place)
            pieces.append(self._piece(bucket, epoch, start, stop))
            place += stop - start
        return np.concatenate(pieces)

    def _piece(self, bucket: int, epoch: int, start: int, stop: int) -> np.ndarray:
        """A slice of one permutation. Of the one before the present, its end alone is kept."""
        count, size = int(self._counts[bucket]), int(self.sizes[bucket])
        whole, tail = self._whole.get(bucket), self._tails.get(bucket)
        if whole and whole.epoch == epoch:
            return whole.rows[start:stop]
        of_end = start >= count - size
        if of_end and tail and tail.epoch == epoch:
            return tail.rows[start - count : stop - count or None]
        new = _Permutation(epoch, self._permuted(bucket, epoch))
        if of_end and epoch < self._epoch.number:
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
    first: int
    """The step of its first batch."""
    end: int
    """The step after its last batch."""
    buckets: np.ndarray
    """The bucket of each batch."""
    numbers: np.ndarray
    """Which batch of its bucket each is."""


class OncePlan(Plan):
    """Batches for evaluation: every example in one of them; what fills none makes smaller ones.

    The smaller batches come last, those of short sentences first, unless batches are mixed.
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
            order = self._random(0, _MIXING_BATCHES).permutation(len(self._batches))
            self._batches = [self._batches[i] for i in order]

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, step: int) -> Batch:
        """Returns batch number `step`, from 0 to below their number."""
        return self._batches[step]


def _members(buckets: np.ndarray, number: int) -> list[np.ndarray]:
    """The places of 0, of 1, and so on to below `number`: arrays [n] uint32."""
    order = np.argsort(buckets, kind="stable").astype(np.uint32)
    ends = np.cumsum(np.bincount(buckets + 1, minlength=number + 1))
    return [order[ends[k] : ends[k + 1]] for k in range(number)]
