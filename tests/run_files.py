"""The directory of a run that was never trained: small files with chosen figures."""

import numpy as np

from t2t_keras import checkpoints, registry
from t2t_keras.checkpoints.t2t import write
from t2t_keras.training.evaluation import EvaluationHistory


def write_run(directory):
    """A run of 400 steps in 1000 seconds, evaluated and saved at 200 and 400."""
    start = {
        "started": "2027-01-15T08:00:00+00:00",
        "started_seconds": 1_800_000_000,
        "noted": "2027-01-15T08:16:40+00:00",
        "command": "t2t-keras-train --train_steps=400",
        "versions": {"keras": "3.15.1"},
        "host": "elsewhere",
        "from_step": 0,
        "replicas": 1,
        "devices": ["CPU"],
        "parameters": 12345,
        "train_steps": 400,
        "ended": "done: step 400",
        "step": 400,
        "seconds": {"training": 600.0, "evaluation": 250.0, "compilation": 50.0},
    }
    run = {"problem": "translate_ende_multi30k", "precision": "float32", "source_vocab_size": 11}
    checkpoints.write_settings(
        str(directory),
        registry.hparams("transformer_tiny,hidden_size=64"),
        {**run, "hparams_set": "transformer_tiny", "starts": [start]},
    )
    history = EvaluationHistory(str(directory), until=0)
    for step, loss, bleu in ((200, 3.0, 10.0), (400, 2.0, 30.0)):
        history.add(step, {"loss": loss, "accuracy": 0.5, "bleu": bleu})
        write(str(directory / f"model.ckpt-{step}"), {"transformer/body/x": np.zeros([3, 5])})
    (directory / "best").write_text("model.ckpt-400\n")
    return directory
