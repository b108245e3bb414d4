"""The network on Keras's JAX or PyTorch backend, beside T2T's numbers, and what Keras's users do with it.

    KERAS_BACKEND=jax PYTHONPATH=examples python tests/golden_on_backend.py GIVEN DIRECTORY

`test_backends.py` writes the file GIVEN, what only TensorFlow can read or make: here it is not needed.
Prints JSON, the errors of each model (`golden.relative_error`), and writes Keras's files into DIRECTORY.
"""

import functools
import gc
import json
import sys
from pathlib import Path

import golden
import keras
import networks
import numpy as np
import pytest
import subclasses

import t2t_keras as t2t
from t2t_keras.checkpoints.names import trainable_names

BACKEND = keras.backend.backend()
if BACKEND == "jax":
    import jax
    import on_jax
elif BACKEND == "torch":
    import torch

POSITIONS = 2  # tokens decoded step by step

PACKED = {
    "inputs": np.array([[5, 9, 3, 7, 6, 8, 1], [4, 1, 0, 0, 0, 0, 0]], np.int32),
    "targets": np.array([[7, 3, 9, 9, 4, 1], [6, 8, 1, 0, 0, 0]], np.int32),
    "inputs_segmentation": np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 0, 0, 0, 0, 0]], np.int32),
    "inputs_position": np.array([[0, 1, 2, 0, 1, 2, 3], [0, 1, 0, 0, 0, 0, 0]], np.int32),
    "targets_segmentation": np.array([[1, 1, 2, 2, 2, 2], [1, 1, 1, 0, 0, 0]], np.int32),
    "targets_position": np.array([[0, 1, 0, 1, 2, 3], [0, 1, 2, 0, 0, 0]], np.int32),
}


def main() -> None:
    given = dict(np.load(sys.argv[1]))
    errors = {name: model_errors(name, part(given, name)) for name in golden.ALL}
    errors["packed"] = [packed_error(pos) for pos in ("timing", "timing_paper")]
    errors["subclass"] = subclass_error()
    errors["samples"] = sampling_errors()
    errors["losses"] = what_keras_users_do(Path(sys.argv[2]))
    print(json.dumps(errors))


def part(given, name):
    """The arrays of a model by what stands after its name."""
    return {n.removeprefix(f"{name}/"): a for n, a in given.items() if n.startswith(f"{name}/")}


def compiled(function):
    return jax.jit(function) if BACKEND == "jax" else function


def model_errors(name, given):
    """The errors of logits and loss, of attention where it is given, and of `MORE`."""
    case, attention = golden.load(name), part(given, "attention")
    model = case.model({n: a for n, a in given.items() if not n.startswith("attention/")})
    call = functools.partial(model, return_attention_weights=True) if attention else model
    logits = compiled(call)(case.batch)
    logits, weights = logits if attention else (logits, {})
    errors = {"logits": golden.relative_error(logits, case.arrays["logits"])}
    if "loss" in case.arrays:
        loss = mean_loss(model, logits, case.batch)
        errors["loss"] = golden.relative_error(loss, case.arrays["loss"])
    if attention:
        errors["attention"] = max(
            golden.relative_error(weights, attention.pop(f"{kind}/{layer}"))
            for kind, layers in weights.items()
            for layer, weights in enumerate(layers)
        )
    return errors | {what: error(case, model) for what, error in MORE.get(name, {}).items()}


def mean_loss(model, logits, batch):
    loss, weight = model.loss_sums(logits, batch["targets"], model.hp.label_smoothing)
    return loss / weight


def gradient_error(case, model):
    """The error of the gradients of all variables, on JAX compiled together; T2T's own is 2e-6 to 8e-6."""

    def loss(trainable):
        logits, _ = model.stateless_call(trainable, [], case.batch, training=True)
        return mean_loss(model, logits, case.batch)

    values = [variable.value for variable in model.trainable_variables]
    if BACKEND == "jax":
        gradients = jax.jit(jax.grad(loss))(values)
    else:
        loss(values).backward()
        gradients = [value.grad for value in values]
    wanted = case.variables("grad")
    return max(
        golden.relative_error(gradient, wanted[variable])
        for variable, gradient in zip(trainable_names(model), gradients, strict=True)
    )


def update_errors(case, model):
    """`Golden.update_errors` after three steps of the example."""
    optimizer = case.optimizer()
    if BACKEND == "jax":
        state = on_jax.initial_state(model, optimizer)
        step = on_jax.training_step(model, optimizer)
        for _ in range(3):
            _, state = step(state, case.batch)
        on_jax.put_back(model, optimizer, state)
    else:
        model.compile(optimizer)
        for _ in range(3):
            model.train_on_batch(case.batch)
    return case.update_errors(model)


def decoding_error(case, model):
    """The error of the logits of two equal hypotheses, decoded step by step."""
    source, targets = model.encode_source(case.source), case.batch["targets"]
    kernels, caches = model.step_kernels(), model.empty_caches(len(targets))
    last_ids = np.zeros((len(targets), 2), np.int32)
    logits = []
    for position in range(POSITIONS):
        step = compiled(functools.partial(model.decode_step, position=position, source=source))
        step_logits, caches = step(last_ids, caches=caches, kernels=kernels)
        step_logits = keras.ops.convert_to_numpy(step_logits)
        logits.append(step_logits[..., : model.target_vocab_size])
        last_ids = np.repeat(targets[:, position, None], 2, axis=1)
    wanted = np.repeat(case.arrays["logits"][:, :POSITIONS, None], 2, axis=2)
    return golden.relative_error(np.stack(logits, 1), wanted)


MORE = {
    "base_prenorm": {
        "search": golden.Golden.search_error,
        "decoding": decoding_error,
        "updates": update_errors,
    },
    "relative": {"search": golden.Golden.search_error, "gradients": gradient_error},
    "language_model_relative": {"search": golden.Golden.search_error},
}
"""What else is compared of some models; training comes last."""


def packed_error(pos):
    """The error of packed rows, beside the network in NumPy."""
    model = networks.small_model(f"pos={pos}")
    logits = keras.ops.convert_to_numpy(compiled(model)(PACKED))
    wanted = networks.numpy_logits(model, PACKED["inputs"], PACKED["targets"], PACKED)
    tokens = PACKED["targets"] != 0
    return golden.relative_error(logits[tokens], wanted[tokens])


def subclass_error():
    """The largest difference between a search's scores and those of the whole network of a subclass."""
    model = networks.small_model(model_class=subclasses.CHANGED["memory"])
    source = networks.SOURCE[:3, :3]
    options = t2t.decoding.DecodeSettings(beam_size=2, extra_length=3)
    found = t2t.decoding.search(model, source, options, alpha=keras.ops.zeros(()))
    ids, scores = map(keras.ops.convert_to_numpy, (found.ids, found.scores))
    wanted = subclasses.whole_scores(compiled(model), source, ids[:, 0])
    return float(np.abs(scores[:, 0] - wanted).max())


def sampling_errors():
    """How rare the frequencies of sampled tokens are, in deviations, and the error of their scores."""
    model, number = networks.search_model(), 1000
    source = np.tile(networks.SOURCE[:1], (number, 1))

    def sample(**options):
        found = t2t.decoding.sample(model, source, max_lengths=[2] * number, **options)
        return map(keras.ops.convert_to_numpy, found)

    ids, scores = sample(seed=-1)
    again, other, best = (next(sample(**o)) for o in ({"seed": -1}, {}, {"seed": 2, "top_k": 1}))
    assert (again == ids).all() and (other != ids).any() and (best == best[0]).all()
    p = np.exp(networks.log_probabilities(model, source[:1], [[]])[0])
    off = np.bincount(ids[:, 0], minlength=len(p)) / number - p
    wanted = subclasses.whole_scores(compiled(model), source, ids)
    return [float(abs(off / np.sqrt(p / number)).max()), float(abs(scores - wanted).max())]


def what_keras_users_do(directory):
    """Fits a model and quantizes it, saves it after each, with its logits, and returns the losses."""
    keras.utils.set_random_seed(0)
    model, logits = networks.small_model("learning_rate_warmup_steps=4"), {}

    def save(name):
        model.save(directory / f"{name}.keras")
        logits[name] = keras.ops.convert_to_numpy(compiled(model)(PACKED))

    with pytest.raises(t2t.errors.UserError, match="load need TensorFlow, got KERAS_BACKEND="):
        _ = t2t.load
    if BACKEND == "torch":  # `compile(jit_compile=True)` traces with symbolic sizes
        flat = torch.compile(lambda x: t2t.shape.flattened(x, 2), backend="eager", dynamic=True)
        assert flat(torch.ones(3, 5, 2)).shape == (15, 2)
    model.compile(t2t.optimizers.create(model.hp))
    losses = model.fit(PACKED, epochs=24, verbose=0).history["loss"]
    save("fit")
    gc.freeze()  # Keras collects garbage for each layer that it quantizes
    model.quantize("int8")
    save("int8")
    np.savez(directory / "logits.npz", **logits)
    return losses


if __name__ == "__main__":
    main()
