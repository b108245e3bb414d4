"""The Transformer of "Attention Is All You Need" on Keras 3, faithful to tensor2tensor.

Submodules load when they are first used, so that `import t2t_keras` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_SUBMODULES = (
    *("checkpoints", "data", "decoding", "errors", "export", "hparams", "inspection", "layers"),
    *("losses", "metrics", "optimizers", "parsing", "problems", "registry", "schedules"),
    *("serving", "settings", "text", "training", "transformer"),
)

_FROM = {
    "Transformer": "transformer",
    "TransformerClassifier": "classifier",
    "load": "trained_model",
}
"""Names exported here that are not modules, and the module of each."""

__all__ = ["Transformer", "TransformerClassifier", "__version__", "load", *_SUBMODULES]

if TYPE_CHECKING:
    from t2t_keras import (
        checkpoints as checkpoints,
        data as data,
        decoding as decoding,
        errors as errors,
        export as export,
        hparams as hparams,
        inspection as inspection,
        layers as layers,
        losses as losses,
        metrics as metrics,
        optimizers as optimizers,
        parsing as parsing,
        problems as problems,
        registry as registry,
        schedules as schedules,
        serving as serving,
        settings as settings,
        text as text,
        training as training,
        transformer as transformer,
    )
    from t2t_keras.classifier import TransformerClassifier as TransformerClassifier
    from t2t_keras.trained_model import load as load
    from t2t_keras.transformer import Transformer as Transformer


def __getattr__(name: str):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FROM:
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBMODULES, *_FROM])
