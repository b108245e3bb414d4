"""Bucket boundaries and batch sizes against the numbers of tensor2tensor itself."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from t2t_keras.data import batching_scheme, bucket_shapes
from t2t_keras.errors import UserError

GOLDEN = json.loads((Path(__file__).parent / "data" / "batching_schemes.json").read_text())


def settings(**changes):
    values = {
        "batch_size": 4096,
        "max_length": 256,
        "min_length": 0,
        "min_length_bucket": 8,
        "length_bucket_step": 1.1,
    }
    return SimpleNamespace(**{**values, **changes})


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: str(case[0]))
def test_scheme_is_that_of_tensor2tensor(case):
    args, boundaries, *rest = case
    expected = dict(zip(GOLDEN["scheme"], [GOLDEN["boundaries"][boundaries], *rest], strict=True))
    assert batching_scheme(**dict(zip(GOLDEN["args"], args, strict=True))) == expected


def test_min_length_is_kept_in_the_scheme():
    assert batching_scheme(min_length=3)["min_length"] == 3


def test_shapes_of_a_run():
    # Boundaries 4 and 8 below 10 tokens; 40 // 4, 40 // 8, 40 // 10 divide 24, the largest
    # highly composite number up to 3 * 10, when rounded down to 8, 4, 4.
    hp = settings(batch_size=40, max_length=10, min_length_bucket=4, length_bucket_step=2.0)
    assert bucket_shapes(hp) == [(8, 3), (4, 7), (4, 10)]
    assert bucket_shapes(hp, replicas=2) == [(16, 3), (8, 7), (8, 10)]


def test_default_settings_have_42_shapes():
    shapes = bucket_shapes(settings())
    assert len(shapes) == 42
    assert shapes[0] == (420, 7)
    assert shapes[-1] == (15, 256)


def test_shapes_leave_out_buckets_that_stay_empty():
    hp = settings(batch_size=40, max_length=10, min_length_bucket=4, length_bucket_step=2.0)
    hp.min_length = 5
    assert bucket_shapes(hp) == [(4, 7), (4, 10)]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"max_length": -1}, "max_length"),
        ({"min_length_bucket": 0}, "min_length_bucket"),
        ({"length_bucket_step": 1.0}, "length_bucket_step"),
        ({"shard_multiplier": 0}, "shard_multiplier"),
    ],
)
def test_settings_out_of_range(changes, name):
    with pytest.raises(UserError, match=f"^{name} is "):
        batching_scheme(**changes)
