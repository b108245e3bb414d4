"""The shapes of batches: few, known beforehand, and no more padding than tensor2tensor's way."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_keras.data import batching_scheme, bucket_shapes
from t2t_keras.data.reading import buckets_for
from t2t_keras.errors import UserError

SCHEMES = json.loads((Path(__file__).parent / "data" / "batching_schemes.json").read_text())


def settings(**changes):
    values = {"batch_size": 4096, "max_length": 256, "min_length": 0, "min_length_bucket": 8}
    values |= {"length_bucket_step": 1.1, "length_bucket_multiple": 1, "t2t_batches": False}
    return SimpleNamespace(**{**values, **changes})


SMALL = settings(batch_size=40, max_length=10, min_length_bucket=4, length_bucket_step=2.0)


def test_shapes_by_hand():
    # T2T has boundaries 4 and 8 below 10, so three buckets. Between 4 and 10, with two edges left:
    # 10 / exp(ln(10 / 4) * (1 / 2) ** 0.8) = 5.9.
    assert bucket_shapes(SMALL) == [(10, 4), (6, 6), (4, 10)]
    assert bucket_shapes(SMALL, replicas=2) == [(20, 4), (12, 6), (8, 10)]

    above_4 = SimpleNamespace(**{**vars(SMALL), "min_length": 5})
    assert bucket_shapes(above_4) == [(6, 6), (4, 10)]  # without buckets that stay empty


def test_default_settings_have_42_shapes():
    shapes = bucket_shapes(settings())
    assert (len(shapes), shapes[0], shapes[-1]) == (42, (512, 8), (16, 256))


@pytest.mark.parametrize(("multiple", "number", "padding"), [(8, 21, 1.10), (16, 14, 1.23)])
def test_multiples_make_fewer_shapes(multiple, number, padding):
    """Each holds as many tokens as before; what they cost sentences of some 25 tokens."""
    hp = settings(length_bucket_multiple=multiple)
    shapes = bucket_shapes(hp)
    assert len(shapes) == number
    assert all(length % multiple == 0 for _, length in shapes)
    assert all(rows == 4096 // length for rows, length in shapes)
    assert bucket_shapes(settings(length_bucket_multiple=8, max_length=250))[-1] == (16, 250)
    lengths = np.random.default_rng(1).lognormal(np.log(25), 0.6, 100_000).astype(int).clip(1, 256)
    fine, coarse = (
        np.array(buckets.edges)[buckets.of(lengths)].sum()
        for buckets in (buckets_for(each, drop_long=True) for each in (settings(), hp))
    )
    assert coarse < padding * fine


every_case = pytest.mark.parametrize("case", SCHEMES["cases"], ids=lambda case: str(case[0]))


@every_case
def test_as_many_buckets_as_tensor2tensor_and_more_of_the_budget(case):
    """The number, the last edge, and rows times ids within `batch_size` agree for 240 settings."""
    args = dict(zip(SCHEMES["args"], case[0], strict=True))
    args.pop("drop_long_sequences")
    replicas = args.pop("shard_multiplier")
    hp = settings(**args)
    ours = buckets_for(hp, drop_long=True, replicas=replicas)
    theirs = buckets_for(hp, drop_long=True, replicas=replicas, t2t_batches=True)
    assert len(ours.edges) == len(theirs.edges)
    assert ours.edges == sorted(set(ours.edges))
    assert ours.edges[-1] == ours.longest == (hp.max_length or hp.batch_size)
    for edge, size in zip(ours.edges, ours.sizes, strict=True):
        rows = size // replicas
        assert size == rows * replicas
        assert rows == 1 or rows * edge <= hp.batch_size < (rows + 1) * edge


@every_case
def test_batches_and_scheme_are_those_of_tensor2tensor(case):
    """`t2t_batches` gives T2T's sizes, and a bucket up to each boundary, for the same settings."""
    values, boundaries, sizes, *rest = case
    args = dict(zip(SCHEMES["args"], values, strict=True))
    scheme = [SCHEMES["boundaries"][boundaries], sizes, *rest]
    assert batching_scheme(**args) == dict(zip(SCHEMES["scheme"], scheme, strict=True))
    args.pop("drop_long_sequences")
    replicas = args.pop("shard_multiplier")
    hp = settings(**args, t2t_batches=True)
    buckets = buckets_for(hp, drop_long=True, replicas=replicas)
    assert buckets.sizes == sizes
    assert buckets.edges[:-1] == [length - 1 for length in SCHEMES["boundaries"][boundaries]]
    assert buckets.edges[-1] == buckets.longest == (hp.max_length or hp.batch_size)


@pytest.mark.parametrize(
    ("longest", "last_bucket"), [(1024, (1024, 15)), (256, (256, 15)), (20, (20, 180))]
)
def test_a_problem_s_longest_example_does_not_change_the_scheme(longest, last_bucket):
    """T2T's `input_fn`: the scheme is of hparam `max_length`, the problem's `max_length` a filter."""
    hp = settings(t2t_batches=True)
    buckets, scheme = buckets_for(hp, True, longest=longest), buckets_for(hp, True)
    last = len(buckets.edges) - 1
    assert (buckets.edges[-1], buckets.sizes[-1], buckets.longest) == (*last_bucket, longest)
    assert (buckets.edges[:last], buckets.sizes) == (scheme.edges[:last], scheme.sizes[: last + 1])
    assert bucket_shapes(hp, longest=longest)[-1] == last_bucket[::-1]


def test_lengths_go_to_the_first_edge_that_holds_them():
    lengths = np.array([1, 4, 5, 6, 7, 10, 11, 300], np.uint32)
    assert buckets_for(SMALL, drop_long=True).of(lengths).tolist() == [0, 0, 1, 1, 2, 2, -1, -1]
    longer = buckets_for(SMALL, drop_long=False)
    assert longer.edges[:6] == [4, 6, 10, 20, 40, 80]
    assert longer.sizes[:6] == [10, 6, 4, 2, 1, 1]
    assert longer.of(lengths).tolist() == [0, 0, 1, 1, 2, 2, 3, 7]


def test_packed_rows_have_one_bucket():
    packed = buckets_for(settings(), packed_length=256, drop_long=True, replicas=2)
    assert packed[:2] == ([256], [32])
    assert buckets_for(settings(batch_size=100), packed_length=256, drop_long=True).sizes == [1]
    assert buckets_for(settings(min_length=3), packed_length=256, drop_long=False).shortest == 3


def padding_share(lengths, buckets, to_longest):
    """Padding of both sides: `to_longest` of each batch, of examples in random order, or to the edge."""
    generator = np.random.RandomState(0)
    real = positions = 0
    bucket = buckets.of(lengths.max(axis=1))
    for number, (size, edge) in enumerate(zip(buckets.sizes, buckets.edges, strict=True)):
        rows = generator.permutation(lengths[bucket == number])
        rows = rows[: len(rows) // size * size].reshape(-1, size, 2)
        real += rows.sum()
        widths = rows.max(axis=1).sum() if to_longest else 2 * edge * len(rows)
        positions += size * widths
    return 1 - real / positions


@pytest.mark.parametrize(
    ("mean", "spread", "ratio_spread"),
    [(27, 0.6, 0.19), (28, 0.6, 0.25), (35, 0.6, 0.17), (15, 0.35, 0.15)],
)
def test_padding_is_not_more_than_that_of_tensor2tensor(mean, spread, ratio_spread):
    """Lengths like those of news in word pieces (German, French, small pieces) and of captions.

    T2T's shapes are thousands there. Log-normal lengths, and ratios of the sides likewise.
    """
    generator = np.random.RandomState(1)
    middle = np.log(mean) - spread**2 / 2 + spread * generator.randn(400_000)
    half = ratio_spread / 2 * generator.randn(400_000)
    sides = np.exp(middle[:, None] + np.stack([half, -half], axis=1))
    lengths = np.maximum(2, np.round(sides)).astype(np.int64)
    ours = padding_share(lengths, buckets_for(settings(), True), to_longest=False)
    t2t_buckets = buckets_for(settings(), True, t2t_batches=True)
    assert 0.05 < ours < padding_share(lengths, t2t_buckets, to_longest=True)


# T2T's boundaries and batch sizes


def test_min_length_is_kept_in_the_scheme():
    assert batching_scheme(min_length=3)["min_length"] == 3


def test_settings_out_of_range():
    wrong = {"batch_size": 0, "max_length": -1, "min_length_bucket": 0, "shard_multiplier": 0}
    for name, value in {**wrong, "length_bucket_step": 1.0}.items():
        with pytest.raises(UserError, match=f"^{name} must be "):
            batching_scheme(**{name: value})
