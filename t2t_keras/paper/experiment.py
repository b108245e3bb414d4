"""Runs a row of the paper from raw data to its results, in stages; running it again resumes it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, changes, open_locked, read_json, write_json, writing
from t2t_keras.paper.rows import BLEU, DEV, F1, PERPLEXITY, Row
from t2t_keras.progress import StopRequests

RECORD_FILE = "experiment.json"
RESULT_FILE = "result.json"
HPARAMS_FILE = "hparams.json"  # in the run's directory
LOCK_FILE = ".lock"

_EVALUATED_BATCHES = 8
_SET_HERE = frozenset(
    {
        *("problem", "data_dir", "output_dir", "hparams", "hparams_set", "train_steps"),
        *("local_eval_frequency", "save_checkpoints_secs", "keep_checkpoint_max"),
        "eval_early_stopping_steps",
    }
)
"""Flags that `--train_flags` must not contain, because the experiment sets them."""
_SPARE_CHECKPOINTS = 5  # room for checkpoints that are written when a run is stopped
_CORRECTED = ("attention_dropout", "pos")
"""Settings of the paper's sets that had other values in version 0.1.0."""


@dataclasses.dataclass(frozen=True)
class ExperimentSettings:
    """The directories of an experiment, and its differences from the row."""

    data_dir: str  # vocabulary and shards
    output_dir: str  # everything else
    tmp_dir: str  # source files
    problem: str = ""  # instead of the row's
    train_steps: int = 0  # instead of the row's
    hparams: str = ""  # overrides of the row's settings
    train_flags: str = ""  # more flags for `t2t-keras-train`
    t2t_usr_dir: str = ""


class Stage(NamedTuple):
    """A stage of an experiment."""

    name: str
    done: Callable[[], bool]  # True if its output is complete
    command: list[str]
    """The module to run as a program, and its arguments; empty if this process does the work."""
    printed: Path | None = None  # the file for its standard output


class Experiment:
    """An experiment with a row of the paper."""

    def __init__(self, row: Row, settings: ExperimentSettings):
        self.row = row
        self.settings = settings
        if settings.t2t_usr_dir:
            registry.import_user_directory(settings.t2t_usr_dir)
        registry.hparams(row.name, settings.hparams)
        try:
            self._train_flags = shlex.split(settings.train_flags)
        except ValueError as error:
            raise UserError(
                f"--train_flags cannot be read ({error}): got {settings.train_flags!r}."
            ) from error
        for flag in self._train_flags:
            if (name := flag.lstrip("-").split("=")[0]) in _SET_HERE:
                raise UserError(
                    f"--train_flags contains --{name}, which the experiment sets itself: leave it out."
                )
        self.problem = registry.problem(settings.problem or row.problem)
        self.steps = settings.train_steps or row.updates
        self.apart = min(row.apart, max(1, self.steps // row.averaged))
        self.averaged = min(row.averaged, -(-self.steps // self.apart))
        self.interval = _interval(self.steps, self.apart)
        splits = [item["split"] for item in self.problem.dataset_splits]
        self.split = row.split if row.split in splits else DEV
        self.directory = Path(settings.output_dir)
        self.run_directory = self.directory / "run"
        self.last_checkpoint = self.run_directory / f"model.ckpt-{self.steps}"
        self.average = self.directory / "averaged" / "model.ckpt"
        self.inputs = self.directory / "inputs.txt"
        self.references = self.directory / "references.txt"
        self.outputs = self.directory / "outputs.txt"
        self.evaluation = self.directory / "evaluation.txt"
        self.result = self.directory / RESULT_FILE

    @property
    def averaged_steps(self) -> list[int]:
        """The steps of the checkpoints to average: the last one and earlier ones."""
        before = self.steps - self.apart
        if self.steps % self.interval:  # the last gap is shorter
            before = (self.steps - 1) // self.apart * self.apart
        earlier = [before - self.apart * n for n in range(self.averaged - 1)]
        return [*reversed(earlier), self.steps]

    @property
    def checkpoint(self) -> Path:
        """The prefix of the checkpoint to evaluate."""
        return self.average if self.averaged > 1 else self.last_checkpoint

    def stages(self) -> list[Stage]:
        """Returns the stages of this row in order."""
        s, row = self.settings, self.row
        data = {"problem": self.problem.name, "data_dir": s.data_dir, "t2t_usr_dir": s.t2t_usr_dir}
        trained = {**data, "checkpoint_path": self.checkpoint}
        texts = [self.problem.name, self.split, s.data_dir, s.tmp_dir, self.inputs, self.references]
        texts += [s.t2t_usr_dir] if s.t2t_usr_dir else []
        hparams = ",".join(filter(None, [row.name, s.hparams, *self._corrected()]))
        spanned = 1 + (self.averaged - 1) * self.apart // self.interval
        train = _command(
            "train",
            **data,
            output_dir=self.run_directory,
            hparams=hparams,
            train_steps=self.steps,
            local_eval_frequency=self.interval,
            keep_checkpoint_max=spanned + _SPARE_CHECKPOINTS,
            eval_steps=_EVALUATED_BATCHES,
        )
        names = ",".join(f"model.ckpt-{step}" for step in self.averaged_steps)
        average = {"prefix": self.run_directory, "checkpoints": names, "output_path": self.average}
        files = {"decode_from_file": self.inputs, "decode_to_file": self.outputs}
        decode = _command("decode", **trained, **files, decode_hparams=row.decode_hparams)
        evaluate = _command("eval", **trained, eval_steps=0, decode_hparams="beam_size=1")

        stages = [
            Stage("datagen", self._has_data, _command("datagen", **data, tmp_dir=s.tmp_dir)),
            Stage(
                "texts",
                lambda: self.inputs.exists() and self.references.exists(),
                ["t2t_keras.paper.held_out", *map(str, texts)],
            ),
            Stage("train", self._is_trained, [*train, *self._train_flags]),
        ]
        if self.averaged > 1:
            stages.append(Stage("average", self._is_averaged, _command("avg", **average)))
        stages.append(Stage("decode", self.outputs.exists, decode))
        if PERPLEXITY in row.paper:
            stages.append(Stage("evaluate", self.evaluation.exists, evaluate, self.evaluation))
        return [*stages, Stage("score", self.result.exists, [])]

    def run(self) -> dict[str, float]:
        """Runs the stages that are not done and returns the results.

        SIGTERM and Ctrl-C end the current stage as they end its own command, with exit code 143 or 130;
        rerun the same command to resume there. A second start waits for the first one.

        Raises:
            UserError: the directory cannot be written or contains another experiment, or a stage
                failed.
        """
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            opened = open_locked(self.directory / LOCK_FILE, str(self.directory))
        with opened as lock, (programs := Programs(lock)):
            for leftover in self.directory.glob("*.incomplete"):  # left by a killed stage
                leftover.unlink()
            self._begin_record()
            for stage in self.stages():
                if stage.done():
                    print(f"{stage.name}: done", flush=True)
                    continue
                programs.stop_if_asked(stage.name)
                if stage.command:
                    _run(stage, programs)
                else:
                    self._score()
        return read_json(self.result)["figures"]

    # Whether the outputs of a stage are complete

    def _has_data(self) -> bool:
        from t2t_keras.data.shards import shard_paths

        problem, data_dir = self.problem, self.settings.data_dir
        name = problem.dataset_filename()
        paths = [Path(data_dir) / file for file in problem.vocab_filenames if file]
        for item in problem.dataset_splits:
            paths += shard_paths(data_dir, name, item["split"], item["shards"])
        return all(path.exists() for path in paths)

    def _is_trained(self) -> bool:
        starts = _recorded(self.run_directory / "run.json").get("starts", [])
        ended = [start.get("ended") for start in starts]
        there = self.last_checkpoint.with_name(self.last_checkpoint.name + ".index").exists()
        return there and f"done: step {self.steps}" in ended

    def _is_averaged(self) -> bool:
        index = self.average.with_name(self.average.name + ".index")
        return index.exists() and (self.average.parent / "checkpoint").exists()

    def _score(self) -> None:
        from t2t_keras.text import read_lines

        references, outputs = (read_lines(str(p)) for p in (self.references, self.outputs))
        figures = _figures(self.problem, references, outputs, self.row.language)
        if self.evaluation.exists():
            printed = self.evaluation.read_text("utf-8").split()  # by `t2t-keras-eval`
            figures[PERPLEXITY] = float(printed[printed.index("perplexity") + 1])
        result = {**self._record(), "split": self.split, "figures": figures}
        write_json(self.result, result)
        print(
            "score: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()),
            flush=True,
        )

    def _corrected(self) -> list[str]:
        """Returns overrides so that a run started by an earlier version keeps its settings."""
        began_with = _recorded(self.run_directory / HPARAMS_FILE)
        now = registry.hparams(self.row.name, self.settings.hparams).to_dict()
        return [
            f"{name}={began_with[name]}"
            for name in _CORRECTED
            if name in began_with and began_with[name] != now[name]
        ]

    # The record

    def _record(self) -> dict[str, Any]:
        s = self.settings
        return {
            "row": self.row.name,
            "problem": self.problem.name,
            "train_steps": self.steps,
            "hparams": s.hparams,
            "data_dir": os.path.abspath(s.data_dir),
        }

    def _begin_record(self) -> None:
        """Writes the record of this experiment; checks that the directory has no other one."""
        path, record = self.directory / RECORD_FILE, self._record()
        before = _recorded(path)
        if before and (different := changes({name: before.get(name) for name in record}, record)):
            raise UserError(
                f"{self.directory} contains another experiment ({'; '.join(different)}): "
                "give the same flags to resume it, or another --output_dir."
            )
        write_json(path, record)


def _interval(steps: int, apart: int) -> int:
    """Returns the steps between checkpoints; those to average should be multiples of `apart` before the last.

    If that takes more than three times as many checkpoints, they are written at multiples of
    `apart`, and the last gap is shorter.
    """
    common = math.gcd(steps, apart)
    return common if 3 * common >= apart else apart


def _figures(
    problem, references: list[str], outputs: list[str], language: str = "de"
) -> dict[str, float]:
    """Returns the paper's metrics, and ones that are comparable with other work."""
    from t2t_keras import metrics

    if problem.quality_metric == "f1":
        tagged = [_with_right_tags(*trees) for trees in zip(references, outputs, strict=True)]
        f1, own = (metrics.parsing_f1(references, trees).f1 for trees in (tagged, outputs))
        return {F1: f1, "F1, own tags": own}
    bleu = metrics.bleu(references, outputs, language)
    return {BLEU: bleu.paper_style, "sacreBLEU": bleu.sacrebleu}


def _with_right_tags(reference: str, output: str) -> str:
    """Gives a tree the tags of the reference; returns it unchanged if their words differ."""
    from t2t_keras.parsing import parse_tree
    from t2t_keras.parsing.trees import with_tags

    gold, tree = (
        list(parse_tree(text).tagged_words()) if text else [] for text in (reference, output)
    )
    if [word for _, word in gold] != [word for _, word in tree]:
        return output
    return str(with_tags(parse_tree(output), [tag for tag, _ in gold]))


def _recorded(path: Path) -> dict[str, Any]:
    """Reads a JSON file; returns {} if it is absent."""
    return read_json(path) if path.exists() else {}


# Programs


def _command(name: str, **flags: Any) -> list[str]:
    """Returns module and flags of `t2t-keras-<name>`, without flags that are ""."""
    given = [f"--{flag}={value}" for flag, value in flags.items() if value != ""]
    return [f"t2t_keras.cli.{name}", *given]


def _as_typed(command: Sequence[str]) -> str:
    """Returns a command in the form that a user would type."""
    module, *arguments = command
    name = module.removeprefix("t2t_keras.cli.")
    program = [f"t2t-keras-{name}"] if name != module else ["python", "-m", module]
    return shlex.join([*program, *arguments])


def _run(stage: Stage, programs: Programs) -> None:
    """Runs the command of a stage and checks its exit code."""
    again = "run the same command again to resume"
    with contextlib.ExitStack() as stack:
        printed = stack.enter_context(atomic_write(stage.printed)) if stage.printed else None
        print(f"{stage.name}: {_as_typed(stage.command)}", flush=True)
        code = programs.run([sys.executable, "-m", *stage.command], printed)
        programs.stop_if_asked(stage.name)
        if code == 2:
            sys.exit(2)  # it has printed its error
        if code:
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            raise UserError(f"{_as_typed(stage.command[:1])} {ended}: {again}.")
    if not stage.done():
        raise UserError(f"the stage {stage.name} ended early: {again}.")


class Programs(StopRequests):
    """Runs programs; as a context manager, forwards SIGTERM, SIGINT and SIGHUP to the running one.

    Each program has its own process group, so that it gets Ctrl-C only once.

    Args:
        lock: an open file that stays locked while a program is alive, even if this process dies.
    """

    def __init__(self, lock: BinaryIO):
        super().__init__()
        self._lock = lock
        self._running: subprocess.Popen | None = None

    def run(self, command: Sequence[str], output: Path | None = None) -> int:
        """Runs a program and returns its exit code, or minus the signal that killed it."""
        sys.stdout.flush()
        with contextlib.ExitStack() as stack:
            printed = stack.enter_context(output.open("wb")) if output else None
            self._running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                start_new_session=True,
                pass_fds=[self._lock.fileno()],
            )
            if self.name:  # the signal came before the program was started
                self._running.send_signal(signal.Signals[self.name])
            code = self._running.wait()
            self._running = None
        return code

    def stop_if_asked(self, stage: str) -> None:
        """Exits with the shell's code for a signal, 128 + its number, if one was received."""
        if self.name:
            stopped = f"stopped by {self.name} in the stage {stage}"
            print(f"{stopped}: run the same command to resume", file=sys.stderr, flush=True)
            sys.exit(128 + signal.Signals[self.name])

    def _record(self, number: int, frame: Any) -> None:
        self.name = self.name or signal.Signals(number).name
        if self._running is not None:
            self._running.send_signal(number)
