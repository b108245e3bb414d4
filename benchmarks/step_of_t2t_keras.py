"""Our training step, or the machine's rate of matrix products; started by `train_step.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


import tensorflow as tf
from step_timing import DROPOUT, LABEL_SMOOTHING, answer

import t2t_keras as t2t
from t2t_keras.matrix_peak import flops_per_position, matrix_peak
from t2t_keras.training import Engine, EngineSettings


def make_step(spec):
    if spec["way"] == "peak":
        rates = []

        def measure():
            matrix_peak.cache_clear()
            rates.append(matrix_peak(spec["precision"]))

        return measure, {"rates": rates, "versions": f"TensorFlow {tf.__version__}"}
    engine = make_engine(spec)
    facts = {
        "versions": f"TensorFlow {tf.__version__}",
        "parameters": sum(v.shape.num_elements() for v in engine.model.trainable_variables),
        "flops_per_position": flops_per_position(engine.model),
    }
    if spec.get("data_dir"):
        return epoch(engine, spec, facts)
    shape = [spec["rows"], spec["length"]]
    seeds = {"inputs": [0, 0], "targets": [0, 1]}
    batch = {
        side: tf.random.stateless_uniform(shape, seed, 2, spec["vocab"], tf.int32)
        for side, seed in seeds.items()
    }
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: engine.train(iterator, 1), facts


def make_engine(spec):
    dropout = ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    hp = t2t.registry.hparams("transformer_base").replace(
        num_hidden_layers=spec["layers"],
        hidden_size=spec["hidden"],
        filter_size=spec["filter"],
        num_heads=spec["heads"],
        label_smoothing=LABEL_SMOOTHING,
        batch_size=spec["rows"] * spec["length"],
        **dict.fromkeys(dropout, DROPOUT),
    )
    settings = EngineSettings(
        xla=spec["compiled"], precision=spec["precision"], remat=spec["way"] == "ours_remat"
    )
    return Engine(
        hp,
        source_vocab_size=spec["vocab"],
        target_vocab_size=spec["vocab"],
        settings=settings,
    )


def epoch(engine, spec, facts):
    """A step on the next few batches of shards.

    It uses the same batches every time, so all shapes have been compiled after the first call.
    """
    batches = t2t.data.Batches(
        t2t.registry.problem(spec["problem"]), "train", spec["data_dir"], engine.model.hp
    )
    dataset = batches.dataset().take(spec["batches"]).cache()
    facts["totals"] = totals = []
    facts["shapes"] = len({tuple(batch["inputs"].shape) for batch in dataset})

    def step():
        totals[:] = engine.train(iter(dataset), spec["batches"])

    return step, facts


if __name__ == "__main__":
    answer(make_step)
