"""The settings that a run writes beside itself, and what a restart may not change."""

from __future__ import annotations

import json
import os

from t2t_keras.errors import UserError
from t2t_keras.settings import HParams


def write_settings(directory: str, hp: HParams, run: dict) -> None:
    """Writes `hparams.json` (T2T's name) and `run.json`, or checks them on a restart.

    Args:
        directory: of the run; made if absent.
        hp: the resolved settings.
        run: what else decides the result: problem, set, seed, vocabulary sizes.

    Raises:
        UserError: the directory cannot be written, or holds a run with other settings; the
            message shows each difference.
    """
    try:
        os.makedirs(directory, exist_ok=True)
        known = os.path.exists(os.path.join(directory, "hparams.json"))
        if known:
            differences = _differences(directory, hp, run)
            if differences:
                raise UserError(
                    f"{directory} holds a run with other settings ({'; '.join(differences)}): "
                    "give the same ones to go on, or another --output_dir."
                )
        else:
            _write_json(os.path.join(directory, "run.json"), run)
            _write_json(os.path.join(directory, "hparams.json"), hp.to_dict())
    except OSError as error:
        raise UserError(
            f"--output_dir {directory} cannot be written: {error.strerror}."
        ) from error


def read_settings(directory: str) -> tuple[HParams, dict]:
    """Reads back what `write_settings` wrote: settings and run."""
    return (
        HParams.from_dict(_read_json(os.path.join(directory, "hparams.json"))),
        _read_json(os.path.join(directory, "run.json")),
    )


def _differences(directory: str, hp: HParams, run: dict) -> list[str]:
    old_hp, old_run = read_settings(directory)
    pairs = dict(old_hp.diff(hp))
    for name in sorted({*old_run, *run}):
        if old_run.get(name) != run.get(name):
            pairs[name] = (old_run.get(name), run.get(name))
    return [f"{name} was {old} and is now {new}" for name, (old, new) in pairs.items()]


def _read_json(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; is this a run?") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}.") from error


def _write_json(path: str, value: dict) -> None:
    with open(path + ".unfinished", "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
    os.replace(path + ".unfinished", path)
