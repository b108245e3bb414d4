"""The model card of an export: data, settings, scores if known, and a field for the licence."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import t2t_keras
from t2t_keras import registry
from t2t_keras.checkpoints.average import AVERAGES
from t2t_keras.checkpoints.t2t import step_in_name
from t2t_keras.decoding import DecodeSettings
from t2t_keras.settings import HParams
from t2t_keras.text import SentencePieceEncoder
from t2t_keras.training.evaluation import EvaluationHistory
from t2t_keras.training.reporting import STARTS

if TYPE_CHECKING:
    from t2t_keras.trained_model import TrainedModel

MODEL_CARD = "MODEL_CARD.md"
"""File name of the model card."""

_START_FIELDS = ("started", "devices", "replicas", "versions")


def model_card(
    model,
    settings: DecodeSettings | None = None,
    trained: TrainedModel | None = None,
    licence: str = "",
) -> str:
    """Returns a Markdown card, with the metadata header that model hubs read.

    Args:
        model: a `Transformer` or an `Ensemble`.
        settings: the decode settings of the export, if any.
        trained: the run that the model comes from, if known.
        licence: the licence of the weights, such as "apache-2.0".
    """
    first = getattr(model, "models", [model])[0]
    title = trained.problem.name if trained else "A Transformer"
    sections = {
        "Data": _data(first, trained),
        "Training": _training(first.hp, trained),
        "Scores": list(_scores(trained)) if trained else [],
    }
    if settings:
        sections["Decoding"] = _items(settings.deciding())
    sections["Use"] = ["To be written by its authors: what it is for, and its known errors."]
    lines = [
        *("---", f"license: {licence or 'unknown'}", "library_name: t2t-keras", "---", ""),
        *(f"# {title}", ""),
        f"A Transformer of {model.count_params():,} parameters, exported by t2t_keras "
        f"{t2t_keras.__version__} on {datetime.date.today()}.",
    ]
    for name, items in sections.items():
        lines += ["", f"## {name}", "", *(items or ["Not known."])]
    return "\n".join(lines) + "\n"


def _data(model, trained: TrainedModel | None) -> list[str]:
    sizes = {"source": model.source_vocab_size, "target": model.target_vocab_size}
    known = [f"{size:,} {side} tokens" for side, size in sizes.items() if size]
    if model.decoder is None:
        known[-1] = f"{model.target_vocab_size:,} classes"
    items = {"vocabulary": ", ".join(known)}
    if trained:
        name = trained.problem.name
        items = {"problem": f"{name}. {registry.summary(name)}".strip(), **items}
        if any(isinstance(e, SentencePieceEncoder) for e in trained.encoders.values()):
            items["tokens"] = (
                "SentencePiece; a program must import tensorflow_text to load a SavedModel"
            )
    return _items(items)


def _training(hp: HParams, trained: TrainedModel | None) -> list[str]:
    items: dict[str, Any] = {"hparams": registry.spec(hp) or hp.to_dict()}
    if trained:
        items |= {k: v for k, v in trained.description().items() if k != "problem"}
        prefix, run = trained.prefixes[0], trained.runs[0]
        items["step"] = f"{step_in_name(prefix):,}"
        if averaged := run.get(AVERAGES, {}).get(os.path.basename(prefix)):
            items["mean of"] = ", ".join(map(os.path.basename, averaged))
        start = (run.get(STARTS) or [{}])[-1]
        items |= {name: start[name] for name in _START_FIELDS if name in start}
    return _items(items)


def _scores(trained: TrainedModel) -> Iterator[str]:
    for prefix in trained.prefixes:
        step = step_in_name(prefix)
        history = EvaluationHistory(os.path.dirname(prefix), step, write=False)
        for name, value in history.figures.get(step, {}).items():
            yield f"- dev {name}: {value:.4g}"


def _items(values: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {value}" for name, value in values.items()]
