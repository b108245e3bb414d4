"""The Transformer of "Attention Is All You Need" on Keras 3, faithful to tensor2tensor.

Submodules load when they are first used, so that `import t2t_keras` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_keras.classifier import TransformerClassifier as TransformerClassifier
    from t2t_keras.trained_model import load as load
    from t2t_keras.transformer import Transformer as Transformer

__version__ = "0.2.0"

_FROM = {
    "Transformer": "transformer",
    "TransformerClassifier": "classifier",
    "load": "trained_model",
}
"""Names exported here that are not modules, and the module of each."""

__all__ = [
    *("__version__", *_FROM),
    *("checkpoints", "data", "decoding", "errors", "export", "hparams", "inspection", "layers"),
    *("losses", "metrics", "optimizers", "parsing", "problems", "registry", "schedules"),
    *("serving", "settings", "t2t_modules", "text", "training", "transformer"),
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A .keras file may name their classes: `keras.models.load_model` then knows them.
    also = ["classifier", "optimizers"] * (name in _FROM)
    for part in [*also, _FROM.get(name, name)]:
        module = importlib.import_module(f"{__name__}.{part}")
    return getattr(module, name) if name in _FROM else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
