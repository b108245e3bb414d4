"""The peak rate of matrix products, and the warning of a slower precision."""

import pytest

from t2t_keras import matrix_peak
from t2t_keras.trained_model import TrainedModel


@pytest.fixture
def rates(monkeypatch):
    rates = {"float32": 258e9, "bfloat16": 152e9, "float16": 300e9}
    monkeypatch.setattr(matrix_peak, "matrix_peak", rates.get)


def test_is_measured(monkeypatch):
    monkeypatch.setattr(matrix_peak, "_SIZES", (1024, 2048))
    monkeypatch.setattr(matrix_peak, "_SECONDS", 0.1)
    assert matrix_peak.matrix_peak("float32") > 1e9


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_faster_is_not_warned_of(rates, dtype):
    assert matrix_peak.slower_than_float32(dtype) == ""


def test_commands_say_that_float32_is_faster(rates, capsys):
    class Model:
        compute_dtype = "bfloat16"

    loaded = TrainedModel.__new__(TrainedModel)
    loaded.model = Model()
    loaded.warn_if_slow()
    line = (
        "warning: bfloat16 is slower than float32 on this machine: measured matmul peak 152 GFLOP/s, "
        "float32 258 GFLOP/s\n"
    )
    assert capsys.readouterr().err == line
    loaded.model.compute_dtype = "float16"
    loaded.warn_if_slow()
    assert capsys.readouterr().err == ""
