"""`t2t_keras.load`: a trained model, with the problem and vocabulary that are recorded beside it."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from t2t_keras import checkpoints, registry
from t2t_keras.checkpoints.average import AVERAGES
from t2t_keras.checkpoints.run_directory import flags_of_t2t
from t2t_keras.decoding import Classifier, DecodeSettings, Ensemble, Translator
from t2t_keras.errors import UserError, explained, require_kind, warn
from t2t_keras.files import content_digest
from t2t_keras.network_settings import INFERENCE_SETTINGS
from t2t_keras.serving import CTranslate2Translator, SavedModel, TextClient
from t2t_keras.settings import HParams
from t2t_keras.text.encoders import require_vocabulary, vocabulary_digest

_EXPORTS = ("saved_model.pb", "[0-9]*/saved_model.pb", "model.bin")


def load(
    path: str | os.PathLike | Sequence[str],
    *,
    problem: str | None = None,
    data_dir: str | os.PathLike | None = None,
    hparams: str | None = None,
    model: str | None = None,
    decode_hparams: str = "",
    precision: str | None = None,
    target_space_id: int | None = None,
) -> TrainedModel | ExportedModel | keras.Model:
    """Loads a trained model; its `translate` takes and returns a list of texts.

    A `.keras` file has no vocabulary: it gives the model itself, which `decoding.Translator` takes.

    Arguments that are left out come from the files that the training wrote beside the checkpoint.

    Args:
        path: directory of a run (its latest checkpoint), a checkpoint, an export, or a `.keras` file; a
            list of checkpoints makes an ensemble.
        problem: name of the problem.
        data_dir: directory of the vocabulary.
        hparams: name of the set and overrides, as in `--hparams`.
        model: registered name of the model.
        decode_hparams: how to decode, such as "beam_size=4,alpha=0.6"; an export has its own.
        precision: one of `precision.PRECISIONS`, such as "int8"; by default the hparam `activation_dtype`.
        target_space_id: the row of the target-space table; see `Transformer`.

    Raises:
        UserError: there is nothing to load, or something is neither given nor recorded.

    Example:
        >>> t2t_keras.load("run").translate(["Two cups."])
        ['Zwei Tassen.']
    """
    require_kind("path", path, str | os.PathLike | Sequence, "a path or a list of paths")
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise UserError("there is nothing to load: the list of checkpoints is empty.")
    paths = [os.path.expanduser(os.fspath(each)) for each in paths]
    own, *others = paths
    is_keras = own.endswith(".keras") and os.path.isfile(own)
    exported = (glob.glob(f"{glob.escape(own)}/{name}") for name in _EXPORTS if os.path.isdir(own))
    if not others and (is_keras or any(exported)):
        what = "a Keras model" if is_keras else "an export"
        given = {"problem": problem, "data_dir": data_dir, "hparams": hparams, "model": model}
        given |= {"decode_hparams": decode_hparams or None, "precision": precision}
        for name, value in (given | {"target_space_id": target_space_id}).items():
            if value is not None:
                raise UserError(f"{own} is {what} with its own settings: leave out {name}.")
        if not is_keras:
            return ExportedModel(own)
        with explained(f"{own} cannot be read", Exception):  # as Keras raises
            return keras.models.load_model(own)
    return TrainedModel(
        paths,
        problem=problem,
        data_dir=data_dir,
        hparams=registry.hparams(hparams) if hparams else None,
        model=model,
        settings=DecodeSettings.parse(decode_hparams) if decode_hparams else None,
        precision=precision,
        target_space_id=target_space_id,
    )


class ExportedModel:
    """A SavedModel or CTranslate2 model of `t2t-keras-export`, in this process.

    For servers see `t2t_keras.serving`.
    """

    def __init__(self, directory: str):
        self.client: CTranslate2Translator | TextClient
        if os.path.exists(os.path.join(directory, "model.bin")):
            self.client = CTranslate2Translator(directory)
        else:
            model = SavedModel(directory)
            names = ("translate", "complete", "classify")  # the signatures for texts
            found = next((name for name in names if name in model.signatures()), names[0])
            self.client = TextClient(model, found)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Returns the best translation of each text."""
        if isinstance(self.client, CTranslate2Translator):
            return [hypotheses[0][0] for hypotheses in self.client.translate(texts)]
        return [answer.texts[0] for answer in self.client.translate(texts)]


class TrainedModel:
    """The model of one checkpoint, or an ensemble of several, with problem and encoders.

    Args:
        paths: checkpoints, or directories (their latest checkpoint).
        problem: the problem or its name; by default the recorded one.
        data_dir: directory of the vocabulary; by default that of training, or that of the checkpoint.
        hparams: settings, if none are recorded beside the checkpoint.
        settings: how to decode.
        model, precision, target_space_id: see `load`.

    Attributes:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders.
        prefixes, runs: the path of each checkpoint, and the `run.json` beside it.

    Raises:
        UserError: something is neither recorded nor given, or does not match.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        problem: Any = None,
        data_dir: str | os.PathLike | None = None,
        hparams: HParams | None = None,
        model: str | None = None,
        settings: DecodeSettings | None = None,
        precision: str | None = None,
        target_space_id: int | None = None,
    ):
        self.precision = precision
        self.prefixes = [checkpoints.resolve(path) for path in paths]
        self.settings = settings or DecodeSettings()
        beside = [checkpoints.read_settings(os.path.dirname(prefix)) for prefix in self.prefixes]
        recorded, run = beside[0]
        self.runs = [run for _, run in beside]
        flags = {} if run.get("starts") else _flags(self.prefixes[0], run)
        problem = problem or run.get("problem") or flags.get("problem")
        if not problem:
            raise UserError("--problem is missing: give it, since no run.json records it.")
        self.problem = registry.problem(problem) if isinstance(problem, str) else problem
        if data_dir:
            self.data_dir = os.fspath(data_dir)
            self.encoders = self.problem.get_feature_encoders(self.data_dir)
        else:
            tried = _data_dirs(self.prefixes[0], run, flags)
            self.data_dir, self.encoders = _first_encoders(self.problem, tried)
            if not self.data_dir:
                raise UserError(
                    f"there is no vocabulary of {self.problem.name} in {' or '.join(tried)}: "
                    "give its directory, --data_dir=DIRECTORY."
                )
        if hparams is None and recorded is None and "hparams_set" in flags:
            hparams = registry.hparams(flags["hparams_set"], flags.get("hparams", ""))
        of_problem = self.problem.get_hparams(hparams or recorded, self.data_dir)
        models = []
        for prefix, run in zip(self.prefixes, self.runs, strict=True):
            space = target_space_id
            if space is None:
                space = run.get("target_space_id", of_problem.target_space_id)
            models.append(checkpoints.load_model(prefix, hparams, space, model, precision))
            registry.require_fit(self.problem, models[-1])
            if spare := require_vocabulary(models[-1], of_problem.vocab_size, run, self.data_dir):
                warn(spare)
            for side, encoder in of_problem.vocabulary.items() if "vocabulary" in run else ():
                if run["vocabulary"].get(side) != vocabulary_digest(encoder):
                    raise UserError(
                        f"the vocabulary of the {side} in {self.data_dir} is not that of {prefix}, though "
                        "it has the same size: give the data that the model was trained on, --data_dir."
                    )
        self.model: Any = Ensemble(models) if len(models) > 1 else models[0]
        self.set_name = (recorded or hparams).set_name or flags.get("hparams_set", "hparams")  # type: ignore[union-attr]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Returns the best translation of each text; `translator` gives scores and beams as well."""
        return [found.texts[0] for found in self.translator().translate(texts)]

    def translator(self, settings: DecodeSettings | None = None, report=None) -> Translator:
        """Returns a `Translator`, or a `Classifier`, that writes outputs in the problem's format."""
        kind = Classifier if self.problem.num_classes else Translator
        return kind(
            self.model,
            self.encoders,
            settings or self.settings,
            report,
            format_output=self.problem.format_output,
            constraint=self.problem.constraint(self.encoders),
        )

    def description(self) -> dict[str, str]:
        """Returns the problem and the checkpoints with their digests, which identify the weights."""
        names = [f"{os.path.basename(path)} {_digest(path + '.index')}" for path in self.prefixes]
        precision = {"precision": self.precision} if self.precision else {}
        return {"problem": self.problem.name, "checkpoint": ", ".join(names), **precision}

    def made_from(self) -> dict[str, str]:
        """Returns what outputs depend on besides decode settings; unlike `description`, all of it."""
        models = self.model.members
        names = filter(None, self.problem.vocab_filenames)
        paths = [os.path.join(self.data_dir, name) for name in names]
        values = {n: [str(getattr(model.hp, n)) for model in models] for n in INFERENCE_SETTINGS}
        values["target_space_id"] = [str(model.target_space_id) for model in models]
        values["model"] = list(map(registry.model_name, models))
        values["vocabulary"] = [_digest(path) for path in paths if os.path.exists(path)]
        joined = {name: ", ".join(dict.fromkeys(each)) for name, each in values.items()}
        return self.description() | joined


def recorded_encoders(prefix: str, problem, data_dir: str | None = None) -> dict[str, Any] | None:
    """Returns the text encoders that a checkpoint was trained with; None if they are not found.

    `problem` is assumed if none is recorded. If `data_dir` is None, the recorded directories and the
    checkpoint's are searched; else a vocabulary that is not there is a `UserError`.
    """
    run = checkpoints.read_settings(os.path.dirname(prefix))[1]
    flags = _flags(prefix, run)
    name = run.get("problem") or flags.get("problem")
    if not name and data_dir is None:
        return None
    try:
        trained_on = registry.problem(name) if name else problem
    except UserError:  # its --t2t_usr_dir is not given now
        return None
    if data_dir is not None:
        return trained_on.get_feature_encoders(data_dir)
    return _first_encoders(trained_on, _data_dirs(prefix, run, flags))[1]


def _first_encoders(problem, directories: Sequence[str]) -> tuple[str, Any]:
    """Returns the first directory that has the vocabulary, and its encoders; or "" and None."""
    for directory in directories:
        with contextlib.suppress(UserError):
            return directory, problem.get_feature_encoders(directory)
    return "", None


def _flags(prefix: str, run: Mapping[str, Any]) -> dict[str, str]:
    """Reads the T2T trainer's flags beside a checkpoint, or beside the last one averaged into it."""
    averaged = run.get(AVERAGES, {}).get(os.path.basename(prefix), [])
    places = [os.path.dirname(path) for path in [prefix, *averaged[-1:]]]
    return next(filter(None, map(flags_of_t2t, places)), {})


def _data_dirs(prefix: str, run: Mapping[str, Any], flags: Mapping[str, str]) -> list[str]:
    """Returns possible vocabulary directories: the recorded ones, newest first, then the checkpoint's."""
    recorded = [start.get("data_dir") for start in reversed(run.get("starts", []))]
    t2ts = os.path.expanduser(flags.get("data_dir", ""))
    return list(dict.fromkeys(filter(None, [*recorded, t2ts, os.path.dirname(prefix) or "."])))


def _digest(path: str) -> str:
    with open(path, "rb") as file:  # of a checkpoint, its index, which holds checksums of its data
        return content_digest(file.read())
