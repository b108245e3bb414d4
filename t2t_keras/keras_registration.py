"""Makes our classes known to `keras.models.load_model` without importing Keras for it.

Keras finds a class of a saved file only if its module has been imported, and importing Keras takes
seconds; so the import of ours follows that of Keras, whoever asks for it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys

_MODULES = (
    "t2t_keras.layers",
    "t2t_keras.optimizers",
    "t2t_keras.schedules",
    "t2t_keras.transformer",
)


def follow_keras() -> None:
    """Imports the modules with our Keras classes as soon as Keras is imported."""
    if "keras" in sys.modules:
        _import_ours()
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _import_ours() -> None:
    for name in _MODULES:
        importlib.import_module(name)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Finds Keras as it would be found without us, once, and adds our imports to its own."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _import_ours()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
