"""T2T's settings that can be assigned, with its sets, registry and constants; the model of its notebook."""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from t2t_keras import registry, settings, t2t_names
from t2t_keras.errors import UserError, nearest, warn
from t2t_keras.metrics.bleu import bleu, international, t2t_bleu
from t2t_keras.t2t_modules.absent import EXTRA
from t2t_keras.text.lines import read_lines, warn_once

# Settings


class HParams(SimpleNamespace):
    """T2T's mutable `HParams`: each setting is an attribute."""

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any):
        vars(self).update(values)

    def add_hparam(self, name: str, value: Any) -> None:
        """Sets a value, as an assignment does."""
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Sets a value that exists."""
        if name not in vars(self):
            raise UserError(f"unknown hparam {name!r}.{nearest(name, vars(self))}")
        setattr(self, name, value)

    def del_hparam(self, name: str) -> None:
        """Removes a value, if it is there."""
        vars(self).pop(name, None)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or `default` if it is absent."""
        return vars(self).get(key, default)

    def values(self) -> dict[str, Any]:
        """Returns all values by name."""
        return dict(vars(self))

    def __contains__(self, key: str) -> bool:
        return key in vars(self)

    def parse(self, values: str) -> HParams:
        """Applies T2T's overrides, "a=1,b=x,l=[1,2]"; one that was None, or nested, as Python's literals."""
        for item in settings.split_items(values):
            name, _, written = (part.strip() for part in item.partition("="))
            value: Any = written
            base = settings.HParams()
            with contextlib.suppress(UserError):  # one of ours, or no value of T2T's types
                base = base.add_hparam(name, self.get(name))
            if name in base and not (name in settings.SETTINGS and settings.SETTINGS[name].inert):
                value = getattr(base.override(item), name)
            elif not isinstance(self.get(name), str):
                with contextlib.suppress(ValueError, SyntaxError):
                    is_word = written in ("true", "false", "none")
                    value = ast.literal_eval(written.capitalize() if is_word else written)
            self.set_hparam(name, list(value) if isinstance(value, tuple) else value)
        return self

    def to_json(self, **kwargs: Any) -> str:
        """Returns the values as a JSON object, without functions; takes what `json.dumps` does."""
        own = {n: v for n, v in vars(self).items() if n not in ("problem", "problem_hparams")}
        return json.dumps({n: v for n, v in own.items() if not callable(v)}, **kwargs)

    def parse_json(self, values_json: str) -> HParams:
        """Applies the values of a JSON object."""
        return self.override_from_dict(json.loads(values_json))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Applies values by name; each must exist."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def frozen(self) -> settings.HParams:
        """Returns the settings that the library uses, those of users included, without other objects."""
        values = {}
        for name, value in vars(self).items():
            if name in ("bottom", "loss", "top", "weights_fn") and value:
                raise UserError(f"hparam {name} is not supported: it must be empty, got {value}.")
            parts = value if isinstance(value, list | tuple) else [value]
            are_plain = all(isinstance(part, bool | int | float | str) for part in parts)
            if name in settings.SETTINGS or (parts and are_plain):
                values[name] = value
        return settings.recorded_settings(values)


def basic_params1() -> HParams:
    """T2T's settings for all models, the ancestor of `transformer_base_v1`."""
    hp = settings.HParams().override(
        "num_hidden_layers=4,hidden_size=64,clip_grad_norm=2,initializer=orthogonal,max_length=0,"
        "initializer_gain=1.5,optimizer_adam_epsilon=1e-6,optimizer_adam_beta1=0.85,"
        "optimizer_adam_beta2=0.997,weight_decay=1e-6,learning_rate_decay_scheme=none,"
        "learning_rate_warmup_steps=100,shared_embedding_and_softmax_weights=false,"
        "symbol_modality_num_shards=1"
    )
    return HParams(**hp.to_dict(), bottom={}, loss={}, name={}, top={}, weights_fn={})


def update_hparams_for_tpu(hparams: HParams) -> None:
    """T2T's changes for TPUs."""
    from t2t_keras.hparams.transformer import for_tpu

    vars(hparams).update(for_tpu(hparams.frozen()).to_dict())


def by_name(name: str) -> Any:
    """Returns what T2T's modules call `name`: a set's function or a problem's class; None: neither."""
    if name in registry.list_hparams():
        return functools.partial(hparams, name)
    return registry.problem_class(name)


def why_absent(name: str) -> str:
    """Returns why a set's function or a model of T2T is not here; "" if it is neither."""
    of_sets, of_models = ("hparams set", name), ("model", t2t_names.snake_case(name))
    return t2t_names.why_absent(*of_sets) or t2t_names.why_absent(*of_models)


def create_hparams(
    hparams_set: str | None,
    hparams_overrides_str: str | None = "",
    data_dir: str | None = None,
    problem_name: str | None = None,
    hparams_path: str | None = None,
) -> HParams:
    """Returns a set with overrides; with a problem, `problem` and `problem_hparams` too (T2T's)."""
    hp = hparams(hparams_set or "")
    if hparams_path and os.path.exists(hparams_path):
        with open(hparams_path, encoding="utf-8") as file:
            vars(hp).update({n: value for n, value in json.load(file).items() if n in hp})
    if data_dir:
        hp.add_hparam("data_dir", os.path.expanduser(data_dir))
    hp.parse(hparams_overrides_str or "")
    if problem_name:
        add_problem_hparams(hp, problem_name)
    return hp


def add_problem_hparams(hparams: HParams, problem_name_or_instance: Any) -> None:
    """Adds `problem` and `problem_hparams` of a problem or its name."""
    named = isinstance(problem_name_or_instance, str)
    made = registry.problem(problem_name_or_instance) if named else problem_name_or_instance
    vars(hparams).update(problem=made, problem_hparams=made.get_hparams(hparams))


def set_random_seed(seed: int) -> None:
    """Seeds TensorFlow, Python and NumPy."""
    import tensorflow as tf

    tf.random.set_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


# The registry

problem, register_base_problem = registry.problem, registry.register_problem
available = list_problems = list_base_problems = registry.list_problems


def import_usr_dir(usr_dir: str | None) -> None:
    """Imports a user directory, if there is one."""
    if usr_dir:
        registry.import_user_directory(usr_dir)


def register_hparams(name: Any = None) -> Any:
    """Registers a function that returns settings, T2T's or ours, under its own name or another."""
    if callable(name):
        return register_hparams()(name)

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(function)
        def frozen() -> Any:
            made = function()
            if not isinstance(made, HParams):
                return made
            usual = {n: s.default for n, s in settings.SETTINGS.items() if s.inert}
            if idle := [n for n, value in usual.items() if made.get(n, value) != value]:
                but = " (t2t-decoder samples)" * any(n.startswith("sampling_") for n in idle)
                warn_once(f"{function.__name__} sets {', '.join(idle)}, without effect here{but}")
            return made.frozen()

        registry.register_hparams(name)(frozen)
        return function

    return register


def register_ranged_hparams(name_or_function: Any = None) -> Any:
    """Does nothing: there is no search for hyperparameters."""
    return name_or_function if callable(name_or_function) else lambda function: function


register_attack = register_attack_params = register_pruning_params = register_ranged_hparams
register_pruning_strategy = register_optimizer = register_env_problem = register_ranged_hparams


def hparams(name: str) -> HParams:
    """Returns a set by its name."""
    return HParams(**registry.hparams(name).to_dict())


def list_hparams(prefix: str | None = None) -> list[str]:
    """Returns the names of all sets that begin with `prefix`."""
    return [name for name in registry.list_hparams() if name.startswith(prefix or "")]


# Constants and texts

_TASKS = "EN_CHR EN_CHR_SENT EN_PR_HYP EN_NLI COLA EN_Q_CONT EN_SIM EN_SENT_PAIR THREE_CL_NLI"
TaskID = IntEnum("TaskID", _TASKS.split(), start=2)  # type: ignore[misc]
camelcase_to_snakecase, transformer_print = t2t_names.snake_case, dict  # MLPerf's log has nothing
default_model_hparams = functools.partial(
    HParams, max_input_seq_length=0, max_target_seq_length=0, prepend_mode="none", data_dir=None
)


class _Constants(type):
    """Names of T2T: each stands for itself in lower case unless it is listed."""

    def __getattr__(cls, name: str) -> str:
        if not name.isupper():
            raise AttributeError(name)
        return name.removesuffix("_LOSS").lower()


class Metrics(metaclass=_Constants):
    """Names of metrics; evaluation says which of them it does not compute."""

    ACC, ACC_TOP5, ACC_PER_SEQ = "accuracy", "accuracy_top5", "accuracy_per_sequence"
    APPROX_BLEU, ROUGE_2_F, ROUGE_L_F = "approx_bleu_score", "rouge_2_fscore", "rouge_L_fscore"


class ModalityType(metaclass=_Constants):
    """Names of modalities; a problem can have SYMBOL and CLASS_LABEL."""


PAD, EOS = RESERVED_TOKENS = ["<pad>", "<EOS>"]
NUM_RESERVED_TOKENS, RESERVED_TOKENS_BYTES = 2, [b"<pad>", b"<EOS>"]
METRICS_FNS: dict[str, Any] = {}  # users add theirs; evaluation says that it does not compute them
bleu_tokenize = international


def to_unicode(s: str | bytes, ignore_errors: bool = False) -> str:
    """Returns a text of UTF-8, with or without an error for bytes that are not."""
    return s if isinstance(s, str) else s.decode("utf-8", "ignore" if ignore_errors else "strict")


to_unicode_utf8 = unicode_to_native = to_unicode
native_to_unicode = to_unicode_ignore_errors = functools.partial(to_unicode, ignore_errors=True)


def is_unicode(s: Any) -> bool:
    """Returns True for a text."""
    return isinstance(s, str)


def compute_bleu(reference_corpus, translation_corpus) -> float:
    """Returns the BLEU of two lists of lists of words, 0 to 1."""
    return t2t_bleu(reference_corpus, translation_corpus, tokenize=lambda x: [*map(str, x)]) / 100


def bleu_wrapper(ref_filename: str, hyp_filename: str, case_sensitive: bool = False) -> float:
    """Returns the BLEU of two text files, 0 to 1."""
    found = bleu(read_lines(ref_filename), read_lines(hyp_filename))
    return (found.t2t_cased if case_sensitive else found.t2t_uncased) / 100


# The notebook

_restored_from: str | None = None


@contextlib.contextmanager
def restore_variables_on_create(save_path: str | None, map_func: Any = None) -> Iterator[None]:
    """TF 1's `tf.contrib.eager.restore_variables_on_create`: models made in its scope have these weights."""
    global _restored_from
    earlier, _restored_from = _restored_from, save_path
    try:
        yield
    finally:
        _restored_from = earlier


EXTRA["contrib.eager.restore_variables_on_create"] = restore_variables_on_create
EXTRA["contrib.training.HParams"] = HParams


def model(name: str) -> Callable[..., NotebookModel]:
    """Returns what makes a model from settings with a `problem`, and a mode."""
    return functools.partial(NotebookModel, registry.model(name))


class NotebookModel:
    """A model as T2T's notebook calls it; its weights are there when it is first called."""

    def __init__(
        self, model_class: type, hparams: HParams, mode=None, problem_hparams: Any = None, *_, **__
    ):
        self.hparams = HParams(**hparams.values())
        p = problem_hparams or hparams.get("problem_hparams")
        if p is None:
            raise UserError("the settings have no problem: give create_hparams a problem_name.")
        self.model = model_class(
            hparams.frozen(),
            source_vocab_size=p.vocab_size.get("inputs"),
            target_vocab_size=p.vocab_size["targets"],
            target_space_id=p.target_space_id,
        )
        self._restored: str | None = None

    def __call__(self, features: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns logits [B, T, 1, 1, V], and the "training" loss, for ids [B, T, 1, 1] or fewer axes."""
        inputs = {side: _ids(features[side]) for side in ("inputs", "targets") if side in features}
        logits = self._with_weights(features)(inputs)
        loss, tokens = self.model.loss_sums(logits, inputs["targets"])
        return logits[:, :, None, None], {"training": loss / tokens}

    def set_mode(self, mode: str) -> None:
        """Does nothing: there is no dropout in a call."""

    def infer(
        self,
        features: Mapping[str, Any],
        decode_length: int = 50,
        beam_size: int = 1,
        top_beams: int = 1,
        alpha: float = 0.0,
        use_tpu: bool = False,
    ) -> dict[str, Any]:
        """Returns "outputs" [B, L], of several beams [B, K, L], and "scores"."""
        from t2t_keras import decoding

        ids = _ids(features["inputs" if "inputs" in features else "targets"])
        own = self.hparams.values().items() if beam_size == 1 else ()  # T2T's beam does not sample
        sampling = {n: v for n, v in own if n.startswith("sampling_")}
        options = decoding.DecodeSettings(beam_size, alpha, decode_length, **sampling)
        model, seed = self._with_weights(features), random.getrandbits(32)
        found = decoding.search(model, ids, options, top_beams=top_beams, seed=seed)
        kept = 0 if top_beams == 1 else slice(None)
        return {"outputs": found.ids[:, kept], "scores": found.scores[:, kept]}

    def _with_weights(self, features: Mapping[str, Any]) -> Any:
        if unread := features.keys() - {"inputs", "targets"}:
            warn_once(f"the model reads inputs and targets, not {', '.join(sorted(unread))}")
        if _restored_from not in (None, self._restored):
            from t2t_keras import checkpoints

            checkpoints.load_t2t(self.model, _restored_from)
            self._restored = _restored_from
        if not self._restored:
            warn("the model has random weights: call it in tfe.restore_variables_on_create(PATH)")
        return self.model


def _ids(given: Any) -> np.ndarray:
    """Returns ids [B, T] of [B, T], [B, T, 1] or [B, T, 1, 1]."""
    ids = np.asarray(given, np.int32)
    return ids.reshape(ids.shape[:2]) if ids.ndim > 2 else ids
