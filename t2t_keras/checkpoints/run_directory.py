"""The directory of a run: settings beside its checkpoints, and loading a model from both."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras import files, registry, t2t_names
from t2t_keras.checkpoints.names import model_of
from t2t_keras.checkpoints.t2t import assign, read, require_sizes, resolve, with_averages
from t2t_keras.errors import UserError, warn
from t2t_keras.network_settings import INFERENCE_SETTINGS, for_inference
from t2t_keras.precision import policy_in, policy_of
from t2t_keras.settings import (
    OTHER_NETWORK,
    OTHER_TRAINING,
    SETTINGS,
    HParams,
    SettingError,
    recorded_settings,
)
from t2t_keras.transformer import Transformer

_NO_SETTINGS = (
    *("bottom", "loss", "name", "top", "weights_fn", "input_modalities", "target_modality"),
    *("data_dir", "model_dir", "problem_choice", "schedule", "std_server_protocol", "train_steps"),
    *("eval_steps", "eval_freq_in_steps", "eval_timeout_mins", "eval_dir_name", "warm_start_from"),
)
"""Keys among T2T's recorded settings that are not settings: its flags and modalities."""

_OFF: tuple[Any, ...] = (None, False, 0, "", "none", [], {})  # values that turn a setting off

HPARAMS_FILE = "hparams.json"  # T2T's name and content
RUN_FILE = "run.json"
RUN_CHECKPOINT = re.compile(r"model\.ckpt-(.*-)?\d+")  # the names that training takes for its own

INFERENCE_ONLY = "inference_only"
"""Key in `run.json` that marks averages, from which training cannot resume."""

AVERAGES = "averages"
"""Key in `run.json`: the checkpoints of each average in the directory, by the average's name."""

SETTINGS_DIGEST = "hparams"
"""Key in `run.json`: a digest of `hparams.json`."""

STARTS = "starts"
"""Key in `run.json`: the starts of the run, see `RunRecord`."""

_SIZE = range(1, 2**31)
_START = {"started_seconds": range(2**63), "replicas": _SIZE, "figures?": dict}
_START |= dict.fromkeys(("data_dir?", "command?"), str)
_RUN = {
    **dict.fromkeys(("problem?", "model?", "hparams_set?", "precision?"), str),
    **dict.fromkeys(("source_vocab_size?", "target_vocab_size?"), _SIZE),
    "target_space_id?": range(2**31),
    "vocabulary?": {str: str},
    "shards?": str,
    f"{SETTINGS_DIGEST}?": str,
    f"{INFERENCE_ONLY}?": bool,
    f"{AVERAGES}?": {str: [str]},
    f"{STARTS}?": [_START],
}
"""The fields of `run.json` that are read."""


def write_settings(directory: str, hp: HParams, run: Mapping[str, Any]) -> None:
    """Writes the settings of a new run, or checks them against those of an existing run.

    Args:
        directory: directory of the run; created if absent. Lock it first if it has other writers.
        hp: the resolved settings.
        run: other facts that affect the result: problem, model, set, seed, vocabulary sizes. Other
            content of `run.json` is kept.

    Raises:
        UserError: the directory cannot be written, or holds averages or a run with other settings;
            the message shows each difference.
    """
    require_same_settings(directory, hp, run)
    with files.writing(directory):
        os.makedirs(directory, exist_ok=True)
    path, settings = os.path.join(directory, RUN_FILE), hp.to_dict()
    run = {**read_settings(directory)[1], **run}
    if run.pop(SETTINGS_DIGEST, _digest(settings)) != _digest(settings):
        files.write_json(path, run)  # a kill must not leave the digest of other settings
    # In this order: `read_settings` takes the settings beside our `run.json` for ours, not T2T's.
    files.write_json(os.path.join(directory, HPARAMS_FILE), settings)
    files.write_json(path, {**run, SETTINGS_DIGEST: _digest(settings)})


def _digest(settings: Mapping[str, Any]) -> str:
    return files.content_digest(files.json_text(settings).encode())


def require_same_settings(directory: str, hp: HParams, run: Mapping[str, Any]) -> None:
    """Checks that a run can start or resume in a directory; see `write_settings`."""
    recorded, old_run = read_settings(directory)  # with defaults for what T2T and old versions lack
    if old_run.get(INFERENCE_ONLY):
        raise UserError(
            f"{directory} holds averages of checkpoints, which are for inference only and cannot "
            "be trained on: name the directory of the run itself, or a new one."
        )
    if recorded is None:
        return
    _require_network(recorded, directory)
    old = recorded.to_dict()
    if added := [name for name in hp if name not in SETTINGS]:
        written = files.read_json(os.path.join(directory, HPARAMS_FILE))
        old |= {name: written[name] for name in added if name in written}
    pairs = {
        name: pair
        for name, pair in hp.diff(old).items()
        if name in hp and (name in added or not SETTINGS[name].inert)
        if name != "optimizer" or len({*map(t2t_names.snake_case, pair)}) > 1  # Adam is adam
    }
    before = {name: theirs for name, (_, theirs) in pairs.items()}
    others = [name for name in old_run if name in run and run[name] != old_run[name]]
    if not before and not others:
        return
    try:
        spec = registry.spec(hp.replace(**before)) if before else ""
    except SettingError:  # no value can be given, such as None for a name that is new in the set
        spec = ""
    now = {name: mine for name, (mine, _) in pairs.items()} | {name: run[name] for name in others}
    shown = "; ".join(files.changes(before | {name: old_run[name] for name in others}, now))
    again = [f"--hparams={shlex.quote(spec)}"] * bool(spec) + [f"the same {n}" for n in others]
    raise UserError(
        f"{directory} holds a run with other settings ({shown}): give "
        f"{' and '.join(again) or 'the same ones'} to resume it, or another directory."
    )


def refuse_run_checkpoint(output: str) -> None:
    """Raises a `UserError` if an output in a run's directory has the name of a checkpoint of the run."""
    directory, name = os.path.split(output)
    if RUN_CHECKPOINT.fullmatch(name):
        raise UserError(
            f"{output} would be taken for a checkpoint of the run in {directory or '.'}: "
            "give another directory, or another name."
        )


def left_out_of_t2t(directory: str, hp: HParams, problem: str, replicas: int) -> list[str]:
    """Lists what of a tensor2tensor run has no effect when it is resumed here, a phrase for each.

    `hp`, the problem's name and the batches per step are those to resume with; `write_settings`
    overwrites the settings that are read here.
    """
    path = os.path.join(directory, HPARAMS_FILE)
    if not os.path.exists(path) or os.path.exists(os.path.join(directory, RUN_FILE)):
        return []
    theirs = files.read_json(path)
    left_out = [
        f"{name}={theirs[name]} ({SETTINGS[name].inert})"
        for name in OTHER_TRAINING
        if theirs.get(name, SETTINGS[name].default) != SETTINGS[name].default
    ]
    left_out += [
        f"{name}={theirs[name]} (there is no such setting)"
        for name in sorted(theirs.keys() - SETTINGS.keys())
        if name not in hp and name not in _NO_SETTINGS and theirs[name] not in _OFF
    ]
    flags = flags_of_t2t(directory)
    if flags.get("problem", problem) != problem:
        left_out.append(f"--problem={flags['problem']} (it is {problem} now)")
    gpus, workers = (flags.get(name, "1") for name in ("worker_gpu", "worker_replicas"))
    if max(1, int(gpus) * int(workers)) != replicas:
        left_out.append(
            f"--worker_gpu={gpus} --worker_replicas={workers} (batches of a step now: {replicas})"
        )
    return left_out


def read_settings(directory: str) -> tuple[HParams | None, dict[str, Any]]:
    """Reads the settings beside a run's or tensor2tensor's checkpoints.

    Returns:
        The settings (None if the directory has none) and the content of `run.json` (empty if absent).
    """
    files.finish_publishing(directory)
    hparams_path, run_path = (os.path.join(directory, n) for n in (HPARAMS_FILE, RUN_FILE))
    run = files.read_json(run_path, _RUN) if os.path.exists(run_path) else {}
    hp = None
    if os.path.exists(hparams_path):
        try:
            values = files.read_json(hparams_path)
            if "hparams_set" in run:
                hp = recorded_settings(values, run["hparams_set"])
            else:  # T2T's, also beside an average: it has names of older models and of no settings, too
                hp = HParams.from_dict({n: v for n, v in values.items() if n in SETTINGS})
        except SettingError as error:
            raise UserError(f"{hparams_path}: {error}.") from error
        if run.get(SETTINGS_DIGEST, _digest(values)) != _digest(values):
            raise UserError(
                f"{hparams_path} is not the file that belongs to {RUN_FILE}: put that one back."
            )
    return hp, run


def describe(model: Transformer) -> dict[str, Any]:
    """Returns the facts about a model that `run.json` records besides its settings."""
    name, own = registry.model_name(model), type(model)
    if own is not registry.model(name):
        warn(f"{own.__name__} is recorded as model {name}: give it a name, registry.register_model")
    return {**model.description(), "model": name}


def load_model(
    path: str,
    hp: HParams | None = None,
    target_space_id: int | None = None,
    model: str | None = None,
    precision: str | None = None,
) -> Transformer:
    """Builds the model of a checkpoint and loads its weights.

    Args:
        path: checkpoint prefix, or a directory (its latest checkpoint).
        hp: the settings; beside a `hparams.json`, those that affect the logits must agree with it.
        target_space_id: the target space, if the directory does not record it.
        model: registered name, if the directory does not record it; by default "transformer".
        precision: one of `precision.PRECISIONS`, for decoding; by default the hparam `activation_dtype`.

    Raises:
        UserError: there is no readable checkpoint or no settings, the settings or the model disagree
            with those of the directory, the model is not registered, the checkpoint does not fit, or
            the precision is unknown or not to be had on this machine.
    """
    prefix = resolve(path)
    directory = os.path.dirname(prefix)
    recorded, run = read_settings(directory)
    settings = recorded or hp
    if settings is None:
        raise UserError(f"{directory} has no {HPARAMS_FILE}: give --hparams_set.")
    if recorded is not None:
        _require_network(recorded, directory)
        both = (recorded, hp or recorded)
        values = [{name: getattr(each, name) for name in INFERENCE_SETTINGS} for each in both]
        if differences := files.changes(*values):
            raise UserError(
                f"--hparams and {directory}/{HPARAMS_FILE} disagree ({'; '.join(differences)}): "
                "leave out --hparams, or give the same settings."
            )
    recorded_model = run.get("model")
    if model and recorded_model and model != recorded_model:
        raise UserError(
            f"{directory} was trained with --model={recorded_model}, got --model={model}: leave it out."
        )
    arrays = read(prefix)
    source_size, target_size = run.get("source_vocab_size"), run.get("target_vocab_size")
    if target_size is None:
        source_size, target_size = vocab_sizes(arrays, prefix)
    if target_space_id is None:
        target_space_id = run.get("target_space_id", 0)
    name = model or recorded_model or model_of(arrays)
    if name == model_of(arrays):  # not a user's own, whose parts may have other sizes
        source, target = vocab_sizes(arrays, prefix)
        sizes = [
            ("vocab_divisor", settings.vocab_divisor, source or target),
            ("source_vocab_size", source_size or 0, source or 0),
            ("target_vocab_size", target_size, target),
        ]
        require_sizes(settings, sizes, arrays, prefix)
    keywords: dict[str, Any] = {"target_space_id": target_space_id}
    if precision is not None:
        keywords["dtype"] = policy_in(precision, policy_of(settings.activation_dtype))
    make = registry.model(name).of_sizes
    loaded = make(for_inference(settings), source_size, target_size, **keywords)
    assign(loaded, with_averages(arrays), prefix)
    return loaded


def vocab_sizes(arrays: Mapping[str, Any], source: str) -> tuple[int | None, int]:
    """Returns the sizes of the source and target vocabulary from the embedding tables.

    The first is None without an encoder; for a classifier, the second is the number of classes.
    """
    rows: dict[str, list[int]] = {}
    for name, table in arrays.items():
        parts = name.split("/")
        if len(parts) == 3 and parts[1].startswith("symbol_modality_"):
            rows.setdefault(parts[2], []).append(len(table))
        elif "/class_label_modality_" in name and parts[-1] == "bias":
            rows["classes"] = [len(table)]
    # An encoder without layers may have no weights.
    of_encoder = re.compile("/body/encoder/|/body/target_space|/encdec_|/class_label_modality_")
    has_encoder = any(map(of_encoder.search, arrays))
    sources = [*rows.get("input_emb", ()), *rows.get("shared", ())]
    targets = [n for s in ("classes", "target_emb", "softmax", "shared") for n in rows.get(s, ())]
    if targets and (sources or not has_encoder):
        # Two shared tables are of different sizes, and the softmax has the target's.
        source_size = next((n for n in sources if n != targets[0]), targets[0])
        return source_size if has_encoder else None, targets[0]
    raise UserError(f"checkpoint {source} has no embedding tables: it is not of a T2T Transformer.")


def _require_network(recorded: HParams, directory: str) -> None:
    for name in OTHER_NETWORK:
        value, setting = getattr(recorded, name), SETTINGS[name]
        if value != setting.default:
            raise UserError(
                f"{directory}/{HPARAMS_FILE} has {name}={value}, a network that is not supported "
                f"({setting.inert}): train a model with {name}={setting.default}."
            )


def flags_of_t2t(directory: str) -> dict[str, str]:
    """Reads the flags that t2t-trainer wrote in a run's directory, if any."""
    path = Path(directory) / "flags.txt"
    if not os.path.isfile(path):
        return {}
    lines = path.read_text("utf-8", "replace").splitlines()
    pairs = (line.removeprefix("--").partition("=") for line in lines)
    older = {"problems": "problem"}  # of T2T 1.4
    flags = {older.get(name, name): value for name, _, value in pairs if value}
    for name in ("train_steps", "worker_gpu", "worker_replicas"):
        if not re.fullmatch("[0-9]{1,18}", flags.get(name, "1")):
            raise UserError(f"{path}: --{name} must be an integer, got {flags[name]!r}.")
    return flags
