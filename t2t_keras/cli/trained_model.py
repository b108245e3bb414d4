"""The trained model that flags name, for the commands that use one."""

from __future__ import annotations

import hashlib
import os

from absl import flags

from t2t_keras.cli import options

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags that name a problem, its data, a run and its checkpoints."""
    options.define_problem()
    options.define_model()
    options.define_hparams()
    flags.DEFINE_string("output_dir", None, "Directory of a run, whose latest checkpoint is used.")
    flags.DEFINE_string(
        "checkpoint_path",
        None,
        "One checkpoint, such as DIR/model.ckpt-100; several, with commas, are an ensemble.",
    )


def require_flags() -> str:
    """Raises a `UserError` if the flags name no model; returns the directory of the vocabulary."""
    data_dir = options.required("data_dir")
    if not FLAGS.checkpoint_path:
        options.required("output_dir")
    return data_dir


class TrainedModel:
    """The model that the flags name, with its problem and encoders.

    Args:
        data_dir: directory of the vocabulary.
    """

    def __init__(self, data_dir: str):
        from t2t_keras import checkpoints
        from t2t_keras.decoding import Ensemble
        from t2t_keras.decoding.translator import warn
        from t2t_keras.text.encoders import require_vocabulary_of_run

        names = (FLAGS.checkpoint_path or FLAGS.output_dir).split(",")
        self.prefixes = [checkpoints.resolve(os.path.expanduser(name.strip())) for name in names]
        given = options.hparams(needed=False)
        beside = [checkpoints.read_settings(os.path.dirname(prefix)) for prefix in self.prefixes]
        recorded, run = beside[0]
        self.problem = options.problem(run.get("problem"))
        self.encoders = self.problem.get_feature_encoders(data_dir)
        sizes = self.problem.vocab_sizes(data_dir)
        models = []
        for prefix, (_, run) in zip(self.prefixes, beside, strict=True):
            space = run.get("target_space_id", self.problem.target_space_id)
            models.append(checkpoints.load_model(prefix, given, space, FLAGS.model))
            if spare := require_vocabulary_of_run(models[-1], sizes, run, data_dir):
                warn(spare)
        self.model = Ensemble(models) if len(models) > 1 else models[0]
        self.set_name = (recorded or given).set_name or "hparams"

    def warn_if_slow(self, precision: str | None = None) -> None:
        """Warns if float32 is faster here than a precision, by default the model's own."""
        from t2t_keras.decoding.translator import warn
        from t2t_keras.matrix_peak import slower_than_float32

        models = getattr(self.model, "models", [self.model])
        for dtype in {precision} if precision else {model.compute_dtype for model in models}:
            if slower := slower_than_float32(dtype):
                warn(slower)

    def translator(self, settings, report=None):
        """Returns a `Translator` with this model and the problem's format of outputs."""
        from t2t_keras.decoding import Translator

        self.warn_if_slow()
        return Translator(
            self.model, self.encoders, settings, report, format_output=self.problem.format_output
        )

    def description(self) -> dict[str, str]:
        """Returns what identifies the weights: the problem and the checkpoints with their digests."""
        names = [f"{os.path.basename(path)} {_digest(path + '.index')}" for path in self.prefixes]
        return {"problem": self.problem.name, "checkpoint": ", ".join(names)}


def _digest(path: str) -> str:
    with open(path, "rb") as file:  # of a checkpoint's index, which holds checksums of its data
        return hashlib.sha256(file.read()).hexdigest()[:16]
