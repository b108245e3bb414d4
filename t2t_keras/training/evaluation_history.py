"""What the evaluations of a run gave, on disk as they come."""

from __future__ import annotations

import json
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.training.early_stopping import METRICS
from t2t_keras.whole_file import whole_file

FILE = "evaluations.jsonl"


class EvaluationHistory:
    """The figures of dev by step: `evaluations.jsonl` of a run, a JSON object a line.

    Args:
        directory: of the run.
        until: the step that the run goes on from; what is recorded of later ones does not count,
            since it comes again.
        write: whether `add` writes.
    """

    def __init__(self, directory: str, until: int, write: bool = True):
        self._path = Path(directory) / FILE
        self._write = write
        self.figures: dict[int, dict[str, float]] = {
            step: figures for step, figures in self._read().items() if step <= until
        }

    def add(self, step: int, figures: dict[str, float]) -> None:
        """Records an evaluation, safely on disk when this returns."""
        self.figures[step] = figures
        if not self._write:
            return
        lines = [json.dumps({"step": step, **self.figures[step]}) for step in sorted(self.figures)]
        try:
            with whole_file(self._path) as partial:
                partial.write_text("\n".join(lines) + "\n", "utf-8")
        except OSError as error:
            raise UserError(f"{self._path} cannot be written: {error.strerror}.") from error

    def of(self, metric: str) -> tuple[list[int], list[float]]:
        """Steps, rising, and what `metric` was at each; evaluations without it are left out."""
        found = [(step, self.figures[step]) for step in sorted(self.figures)]
        pairs = [(step, figures[metric]) for step, figures in found if metric in figures]
        return [step for step, _ in pairs], [value for _, value in pairs]

    def best(self, metric: str) -> int | None:
        """The step of the best `metric`, the first of equals; None: there is no figure of it."""
        steps, values = self.of(metric)
        sign = 1 if METRICS[metric] else -1
        return (
            min(zip((sign * value for value in values), steps, strict=True))[1] if steps else None
        )

    def _read(self) -> dict[int, dict[str, float]]:
        if not self._path.exists():
            return {}
        try:
            rows = [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]
            return {row.pop("step"): row for row in rows}
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise UserError(
                f"{self._path} cannot be read ({error}): remove it to go on."
            ) from error
