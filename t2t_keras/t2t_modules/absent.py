"""Names of T2T and of TensorFlow 1 that users' files mention: they import, and an absent one fails when used."""

import builtins
import contextlib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from t2t_keras.errors import UserError

_depth = 0  # of users' modules that are being imported


@contextlib.contextmanager
def importing_users_code() -> Iterator[None]:
    """In its scope an absent name may be called: modules build decorators and constants of them."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


class _Absent(type):
    """The class of absent names: classes, so that users can derive from them and decorate with them."""

    path: str
    reason: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "path" not in vars(cls):  # a user's class, derived from an absent one
            return cls._fail()
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # as a decorator
        return cls if _depth else cls._fail()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(f"{cls.path}.{name}")

    def _fail(cls, *_: Any) -> Any:
        reason = f": {cls.reason}" if cls.reason else ""
        raise UserError(f"{cls.path} is not here{reason}; see docs/from-tensor2tensor.md.")

    __iter__ = __getitem__ = __add__ = __radd__ = __mul__ = __sub__ = __contains__ = _fail


def absent(path: str, reason: str = "") -> type:
    """Returns a stand-in for the absent name `path`, such as "tensor2tensor.layers.common_layers.dense"."""
    module, _, name = path.rpartition(".")
    return _Absent(name, (), {"__module__": module, "path": path, "reason": reason})


# TensorFlow as files for TF 1 see it

_MODES = SimpleNamespace(TRAIN="train", EVAL="dev", PREDICT="infer", INFER="infer")  # as our splits
EXTRA: dict[str, Any] = {
    "estimator.ModeKeys": _MODES,
    "contrib.learn.ModeKeys": _MODES,
    "contrib.eager.enable_eager_execution": lambda *args, **kwargs: None,
}
"""Names of TF 1 that neither TF 2 nor its `compat.v1` has; `t2t_modules.settings` adds others."""


class _TensorFlow1(ModuleType):
    """TensorFlow, or one of its modules: TF 2's names, then those of `tf.compat.v1`, then absent ones.

    The real modules stay as they are: other packages recognise TF 1 by its names.
    """

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import tensorflow as tf

        inside = self.__name__.split(".")[1:]
        if inside[:2] in (["compat", "v1"], ["compat", "v2"]):
            inside = inside[2:]
        for found in (tf, tf.compat.v1):
            for part in [*inside, name]:
                found = getattr(found, part, None)
            if found is not None:
                is_module = isinstance(found, ModuleType)
                return tensorflow(f"{self.__name__}.{name}") if is_module else found
        path = ".".join([*inside, name]).replace("contrib.eager.python.tfe", "contrib.eager")
        if path in EXTRA:
            return EXTRA[path]
        if path == "contrib" or any(each.startswith(f"{path}.") for each in EXTRA):
            return tensorflow(f"{self.__name__}.{name}")
        return absent(f"tensorflow.{path} of TensorFlow 1")


def tensorflow(name: str = "tensorflow") -> ModuleType:
    """Returns TensorFlow, or the module `name` of it, as files for TF 1 see it."""
    return _modules.setdefault(name, _TensorFlow1(name))


_modules: dict[str, ModuleType] = {}


def _import(name: str, globals=None, locals=None, fromlist=(), level: int = 0) -> Any:
    top, _, rest = name.partition(".")
    of_tensorflow = top == "tensorflow" and not level
    if not of_tensorflow or rest.startswith("python"):
        try:
            return builtins.__import__(name, globals, locals, fromlist, level)
        except ModuleNotFoundError:
            if not of_tensorflow:
                raise
    return tensorflow(name if fromlist else top)


BUILTINS = {**vars(builtins), "__import__": _import}
"""`__builtins__` of a user's module: its `import tensorflow` gets TF 1's names, too."""
