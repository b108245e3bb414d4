"""Training: the step, the loop around it, evaluation and checkpoints of a run."""

from t2t_keras.training.evaluation import Evaluation
from t2t_keras.training.run_checkpoint import RunCheckpoints
from t2t_keras.training.step import TrainStep
from t2t_keras.training.trainer import Trainer, TrainSettings

__all__ = ["Evaluation", "RunCheckpoints", "TrainSettings", "TrainStep", "Trainer"]
