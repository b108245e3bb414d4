"""Trains on several replicas and on one, in a process of its own: `test_distribution.py` runs it.

TensorFlow's devices are fixed at its first operation, so that no test can change them.
Writes what it finds, numbers by name, as JSON to the file named by its last argument.
"""

import contextlib
import json
import sys
import tempfile

import numpy as np

SMALL = (
    "hidden_size=16,filter_size=24,num_heads=2,num_hidden_layers=1,symbol_modality_num_shards=3,"
    "learning_rate_schedule=constant,learning_rate_constant=0.5,optimizer=sgd"
)
PLAIN = "attention_dropout=0.0,relu_dropout=0.0,layer_prepostprocess_dropout=0.0"
ACCUMULATED = (
    "optimizer=multistep_adam,optimizer_multistep_accumulate_steps=3,learning_rate_constant=0.01"
)
VOCAB = 23


def batches(count, rows=4, length=7):
    """Batches of which the first half has many more target tokens than the second."""
    random = np.random.default_rng(3)
    for _ in range(count):
        inputs = random.integers(2, VOCAB, (rows, length), np.int32)
        targets = random.integers(2, VOCAB, (rows, length), np.int32)
        targets[rows // 2 :, 2:] = 0
        yield {"inputs": inputs, "targets": targets}


def iterator(some, host=0, hosts=1):
    import tensorflow as tf

    share = [{name: np.split(ids, hosts)[host] for name, ids in batch.items()} for batch in some]
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in share[0]}
    return iter(tf.data.Dataset.from_generator(lambda: iter(share), output_signature=spec))


SIZES = {"transformer": (VOCAB, VOCAB), "language model": (None, VOCAB), "classifier": (VOCAB, 4)}


def of_kind(batch, kind):
    """The batch of a model of a kind: targets alone, or one class a row."""
    if kind == "language model":
        return {"targets": batch["targets"]}
    return batch if kind == "transformer" else {**batch, "targets": batch["targets"][:, :1] % 4}


def engine(overrides, batches_per_step=1, model="transformer", **settings):
    import t2t_keras as t2t
    from t2t_keras.training import Engine, EngineSettings

    hp = t2t.registry.hparams("transformer_base", SMALL).override(PLAIN).override(overrides)
    source_size, target_size = SIZES[model]
    return Engine(
        hp,
        source_vocab_size=source_size,
        target_vocab_size=target_size,
        model_class=t2t.TransformerClassifier if model == "classifier" else t2t.Transformer,
        settings=EngineSettings(**settings),
        batches_per_step=batches_per_step,
    )


@contextlib.contextmanager
def eagerly():
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def flat(variables):
    return np.concatenate([np.ravel(np.asarray(variable)) for variable in variables])


def weights(trained):
    return flat(trained.model.trainable_variables)


def disagreement(trained):
    """The largest difference of a variable between replicas."""
    kept = [*trained.model.variables, *trained.optimizer.variables, *trained.state().values()]
    largest = 0.0
    for variable in kept:
        if hasattr(variable, "value"):  # of accumulated gradients, each replica has its own
            parts = trained.strategy.experimental_local_results(variable.value)
            first, *others = map(np.asarray, parts)
            largest = max([largest, *(float(np.abs(first - other).max()) for other in others)])
    return largest


def trained_alike(overrides, steps, kind, batches_per_step=1, model="transformer", **settings):
    """Trains on all replicas, and on one operation by operation; returns what differs, and all replicas' engine."""
    many = engine(overrides, batches_per_step, model, distribute=kind, **settings)
    start = weights(many)
    some = [of_kind(batch, model) for batch in batches(steps * batches_per_step)]
    theirs = many.train(iterator(some, many.host, many.hosts), steps)
    with eagerly():
        alone = settings | {"remat": False}
        one = engine(overrides, batches_per_step, model, distribute="none", **alone)
        same_start = bool((weights(one) == start).all())
        ours = one.train(iterator(some), steps)
    figures = {
        "replicas": many.replicas,
        "hosts": many.hosts,
        "step": many.step,
        "same start": same_start,
        "moved": float(np.abs(weights(one) - start).max()),
        "difference": float(np.abs(weights(many) - weights(one)).max()),
        "disagreement": disagreement(many),
        "totals": [list(theirs), list(ours)],
        "checksum": float(weights(many).astype(np.float64).sum()),
    }
    with many.evaluation_weights(), one.evaluation_weights():
        figures["average difference"] = float(np.abs(weights(many) - weights(one)).max())
    return figures, many


def losses(many):
    """The loss of the same rows on each replica."""
    batch = {side: ids[:1] for side, ids in next(batches(1)).items()}
    with eagerly():
        sums = many.strategy.run(lambda: many._train_step.forward_backward(batch)[1])
    return [float(part[0]) for part in many.strategy.experimental_local_results(sums)]


def fitted(strategy, prepare, **clipping):
    """Weights, history and figures of four steps of Keras's own `fit`."""
    import tensorflow as tf
    from networks import small_model

    import t2t_keras as t2t
    from t2t_keras.training import SaveCheckpoints, prepare_fit

    overrides = f"num_hidden_layers=1,learning_rate_warmup_steps=9,optimizer=momentum,{PLAIN}"
    dataset = tf.data.Dataset.from_tensors(next(batches(1))).repeat(4)
    with strategy.scope():
        model = small_model(overrides)
        model.compile(t2t.optimizers.create(model.hp, **clipping), run_eagerly=not prepare)
    if prepare:
        prepare_fit(model)
        saving = SaveCheckpoints(model, tempfile.mkdtemp())
    history = model.fit(dataset, verbose=0, callbacks=[saving] if prepare else None).history
    figures = [*history.values(), model.evaluate(dataset, verbose=0)]
    return flat(model.trainable_variables), [float(x) for x in np.concatenate(figures)]


def fitted_alike(mirrored):
    import tensorflow as tf

    from t2t_keras.errors import UserError

    one, two = fitted(tf.distribute.get_strategy(), False), fitted(mirrored, True)
    complaints = []
    for prepare, clipping in ((False, {}), (True, {"clipvalue": 1.0})):
        try:
            fitted(mirrored, prepare, **clipping)
        except UserError as error:
            complaints.append(str(error))
    difference = float(np.abs(one[0] - two[0]).max())
    return {"difference": difference, "figures": [one[1], two[1]], "complaints": complaints}


def interrupted(whole, overrides, **settings):
    """Goes on between two updates, in another engine; returns how much that changes."""
    other = engine(overrides, random_seed=5, **settings)
    kept = [*whole.model.variables, *whole.optimizer.variables, *whole.state().values()]
    places = [*other.model.variables, *other.optimizer.variables, *other.state().values()]
    for place, value in zip(places, kept, strict=True):
        place.assign(np.asarray(value))
    other.step = whole.step
    between_updates = whole.between_updates
    whole.train(iterator(list(batches(3))), 3)
    with eagerly():
        other.train(iterator(list(batches(3))), 3)
    return {
        "difference": float(np.abs(weights(whole) - weights(other)).max()),
        "accumulated": float(
            np.abs(flat(whole.state().values()) - flat(other.state().values())).max()
        ),
        "steps": [whole.step, other.step],
        "between updates": between_updates,
    }


def main():
    kind, path = sys.argv[1:]
    every = "clip_grad_norm=0.5,weight_decay=0.01"
    import tensorflow as tf
    import toy

    toy.quick_graphs()
    if kind == "mirrored":
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
        accumulated = f"{ACCUMULATED},{every}"
        figures = {"plain": trained_alike(every, 3, "auto", ema=0.5, xla=True)[0]}
        figures["accumulated"], many = trained_alike(accumulated, 7, "mirrored", remat=True)
        figures["interrupted"] = interrupted(many, accumulated, distribute="mirrored", remat=True)
        small = f"{every},learning_rate_constant"
        adam_w = f"{small}=0.01,optimizer=adam_w"
        figures["joined"], many = trained_alike(adam_w, 3, "mirrored", batches_per_step=2)
        adafactor = f"{small}=0.1,optimizer=adafactor"
        figures["classifier"] = trained_alike(adafactor, 2, "mirrored", model="classifier")[0]
        figures["fit"] = fitted_alike(many.strategy)
        dropout = engine("layer_prepostprocess_dropout=0.3", distribute="mirrored")
        figures["masks"] = {"dropout": losses(dropout), "none": losses(many)}
    else:
        plain, *_ = trained_alike(f"weight_decay=0.01,{ACCUMULATED}", 7, "auto", ema=0.5)
        figures = {"plain": plain}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(figures, file)


if __name__ == "__main__":
    main()
