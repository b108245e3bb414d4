"""Bucket boundaries and batch sizes against the numbers of tensor2tensor itself."""

import json
from pathlib import Path

import pytest

from t2t_keras.data import batching_scheme
from t2t_keras.errors import UserError

GOLDEN = json.loads((Path(__file__).parent / "data" / "batching_schemes.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: str(case[0]))
def test_scheme_is_that_of_tensor2tensor(case):
    args, boundaries, *rest = case
    expected = dict(zip(GOLDEN["scheme"], [GOLDEN["boundaries"][boundaries], *rest], strict=True))
    assert batching_scheme(**dict(zip(GOLDEN["args"], args, strict=True))) == expected


def test_min_length_is_kept_in_the_scheme():
    assert batching_scheme(min_length=3)["min_length"] == 3


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
    with pytest.raises(UserError, match=f"^{name} must be "):
        batching_scheme(**changes)
