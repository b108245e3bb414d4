"""Training: the engine, the loop around it, evaluation and checkpoints of a run."""

from t2t_keras.training.callbacks import EvaluateOnDev, SaveCheckpoints, prepare_fit
from t2t_keras.training.engine import Engine, EngineSettings
from t2t_keras.training.evaluation import EarlyStopping, Evaluation
from t2t_keras.training.run_checkpoint import RunCheckpoints
from t2t_keras.training.train_step import TrainStep
from t2t_keras.training.trainer import Trainer, TrainSettings

__all__ = ["EarlyStopping", "Engine", "EngineSettings", "EvaluateOnDev", "Evaluation"]
__all__ += ["RunCheckpoints", "SaveCheckpoints", "TrainSettings", "TrainStep", "Trainer"]
__all__ += ["prepare_fit"]
