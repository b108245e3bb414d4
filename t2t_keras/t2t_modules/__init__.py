"""tensor2tensor's modules over this library, so that files that were written for T2T run as they are.

They are there while a user directory is imported (`--t2t_usr_dir`) and from then on; after `install()` in a
notebook; and for a script that imports T2T itself with `python -m t2t_keras.t2t_modules script.py ...`.
"""

import importlib
import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from t2t_keras.t2t_modules.absent import BUILTINS, absent, importing_users_code, tensorflow

_PACKAGES = {
    *("", "bin", "data_generators", "data_generators.wikisum", "envs", "insights", "layers"),
    *("models", "models.mesh_tensorflow", "models.neural_architecture_search", "models.research"),
    *("models.video", "rl", "serving", "utils", "visualization"),
}
"""T2T's packages, whose attributes are modules."""

_SETTINGS, _UTILS = "t2t_modules.settings", "data.generator_utils"

_CONTENTS: dict[str, tuple[str, ...]] = {
    "data_generators.generator_utils": (_UTILS, "data.sources", "data.shards"),
    "data_generators.problem": ("data.problem", _SETTINGS),
    "data_generators.text_encoder": (_SETTINGS, "text", "text.encoders", "ids"),
    "data_generators.text_problems": (_UTILS, "data", "data.text_problem"),
    "data_generators.tokenizer": ("text.tokenizer",),
    "data_generators.wsj_parsing": ("parsing.trees",),
    "data_generators.translate": (_UTILS, "data.sources", "data"),
    "utils.registry": (_SETTINGS, "registry"),
    **dict.fromkeys(("layers.common_hparams", "layers.modalities"), (_SETTINGS,)),
    **dict.fromkeys(("models.transformer", "problems"), (_SETTINGS,)),
    **{f"utils.{n}": (_SETTINGS,) for n in ("bleu_hook", "hparam", "hparams_lib", "metrics")},
    **{f"utils.{n}": (_SETTINGS,) for n in ("misc_utils", "mlperf_log", "trainer_lib", "usr_dir")},
    **{f"bin.t2t_{n}": ("cli.t2t",) for n in ("avg_all", "bleu", "datagen")},
    **{f"bin.t2t_{n}": ("cli.t2t",) for n in ("decoder", "trainer", "translate_all")},
}
"""T2T's modules with contents, and the modules of ours that hold them, the first one first."""

_BY_NAME = {path.rpartition(".")[2]: path for path in _CONTENTS}


def load(name: str) -> ModuleType:
    """Imports a module of this package by its name, such as "data.problem"."""
    return importlib.import_module(f"t2t_keras.{name}")


class _Module(ModuleType):
    """A module of T2T: what we have of it, our problems and sets by their T2T names, then absent names."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        path = self.__name__.partition(".")[2]
        if name == "__all__" and path not in _PACKAGES:  # of `import *`
            ours = [pair for place in _CONTENTS.get(path, ()) for pair in vars(load(place)).items()]
            names = [n for n, x in ours if n[0] != "_" and not isinstance(x, ModuleType)]
            return names + load("registry").list_hparams()
        if name.startswith("__") or path in _PACKAGES:
            raise AttributeError(name)  # of a package it is a module, which the importer finds
        for place in _CONTENTS.get(path, ()):
            found = getattr(load(place), name, None)
            if found is not None and not isinstance(found, ModuleType):
                return found.of_module(path) if hasattr(found, "of_module") else found
        if name == "tf":
            return tensorflow()
        if name in _BY_NAME:  # T2T's modules import each other
            return BUILTINS["__import__"](f"tensor2tensor.{_BY_NAME[name]}", fromlist=["*"])
        theirs = load(_SETTINGS)
        return theirs.by_name(name) or absent(f"{self.__name__}.{name}", theirs.why_absent(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__") and not isinstance(value, ModuleType):
            load("errors").warn(f"assigning {self.__name__}.{name} has no effect on our code")
        super().__setattr__(name, value)


class _T2T(MetaPathFinder, Loader):
    """Finds every module of T2T, and loads the modules of users with TF 1's names in TensorFlow."""

    def __init__(self) -> None:
        self.roots: set[str] = set()  # directories of users; "": all that is not installed

    def find_spec(self, fullname: str, path: Sequence[str] | None, target=None) -> Any:
        top = fullname.partition(".")[0]
        if top == "tensor2tensor":
            return ModuleSpec(fullname, self, is_package=True)
        if top == "t2t_keras":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and type(spec.loader) is SourceFileLoader and self.is_users(str(spec.origin)):
            spec.loader = _UsersLoader(fullname, str(spec.origin))
            return spec
        return None

    def is_users(self, file: str) -> bool:
        """Returns True for a file of the user: the innermost known directory around it is one of `roots`."""
        around = (d for d in (*self.roots, *_INSTALLED) if file.startswith(os.path.join(d, "")))
        return max(around, key=len, default=None) in self.roots

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        path = module.__name__.partition(".")[2]
        if "cli.t2t" in _CONTENTS.get(path, ()):  # scripts assign T2T's flags
            load("cli.t2t").main.define_flags_of(path)


_INSTALLED = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    *(sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)


class _UsersLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = BUILTINS
        with importing_users_code():
            super().exec_module(module)


_finder = _T2T()


def install(directory: str = "") -> None:
    """Makes `import tensor2tensor` work, in a notebook or script; `tensorflow` also gets TF 1's names.

    Args:
        directory: whose modules see TF 1's names; default: the caller and what is not installed.
    """
    _finder.roots.add(directory)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    load(_SETTINGS)  # adds to TF 1's names
    if not directory:
        sys._getframe(1).f_globals["__builtins__"] = BUILTINS
