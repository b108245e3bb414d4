"""The network on Keras's JAX or PyTorch backend, beside T2T's numbers, and what Keras's users do with it.

    KERAS_BACKEND=jax PYTHONPATH=examples python tests/golden_on_backend.py GIVEN DIRECTORY

`test_backends.py` writes the file GIVEN, what only TensorFlow can read or make: here it is not needed.
Prints JSON, the errors of each model (`golden.relative_error`), and writes Keras's files into DIRECTORY.
"""

import functools
import json
import sys
from pathlib import Path

import golden
import keras
import networks
import numpy as np
import numpy_transformer
import subclasses

import t2t_keras as t2t
from t2t_keras.checkpoints.names import trainable_names

BACKEND = keras.backend.backend()
if BACKEND == "jax":
    import jax
    import on_jax

DIFFERENTIATED = "relative"
"""The model whose gradients are compared. (T2T's own are 2 to 8 millionths off.)"""

UPDATED = "base_prenorm"
"""The model that is also trained and decoded."""

POSITIONS = 2
"""Number of tokens decoded step by step."""

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
    errors = {name: forward_errors(name, part(given, name)) for name in golden.MODELS}
    errors[DIFFERENTIATED]["gradients"] = gradient_error(part(given, DIFFERENTIATED))
    for name in (UPDATED, DIFFERENTIATED):
        case = golden.load(name)
        errors[name]["search"] = search_error(
            model_with(case.new_model(), part(given, name)),
            case.arrays["inputs"],
            case.extra_length,
            case.arrays["beam_all/outputs"],
            case.arrays["beam_all/scores"],
        )
    errors[UPDATED] |= update_errors(part(given, UPDATED))
    errors[UPDATED] |= decoding_errors(part(given, UPDATED))
    errors["release"] = {"logits": release_error(part(given, "release"))}
    errors |= {name: other_errors(name, part(given, name)) for name in golden.OTHERS}
    errors["packed"] = {"logits": max(packed_error(pos) for pos in ("timing", "timing_paper"))}
    errors["subclasses"] = {
        name: subclasses.search_error(name, networks.SOURCE[:3]) for name in subclasses.CHANGED
    }
    errors["losses"] = what_keras_users_do(Path(sys.argv[2]))
    print(json.dumps(errors))


def what_keras_users_do(directory):
    """Fits a model and quantizes it, saves it after each, with its logits, and returns the losses."""
    keras.utils.set_random_seed(0)
    model, logits = networks.small_model("num_hidden_layers=1,learning_rate_warmup_steps=4"), {}

    def save(name):
        model.save(directory / f"{name}.keras")
        logits[name] = keras.ops.convert_to_numpy(compiled(model)(PACKED))

    model.compile(t2t.optimizers.create(model.hp))
    losses = model.fit(PACKED, epochs=24, verbose=0).history["loss"]
    save("fit")
    model.quantize("int8")
    save("int8")
    np.savez(directory / "logits.npz", **logits)
    return losses


def compiled(function):
    return jax.jit(function) if BACKEND == "jax" else function


def part(given, name):
    """The arrays of a model by what stands after its name."""
    return {n.removeprefix(f"{name}/"): a for n, a in given.items() if n.startswith(f"{name}/")}


def forward_errors(name, given):
    """Returns the errors of logits, loss and, where given, attention weights."""
    case = golden.load(name)
    model = model_with(case.new_model(), given)
    batch = batch_of(case.arrays)
    logits, attention = model(batch, return_attention_weights=True)
    return {
        "logits": golden.relative_error(logits, case.arrays["logits"]),
        "loss": golden.relative_error(
            loss_of(logits, batch, case.hp), case.arrays["training_loss"]
        ),
        "attention": max(
            [
                golden.relative_error(weights, given[f"attention/{kind}/{layer}"])
                for kind, layers in attention.items()
                for layer, weights in enumerate(layers)
                if f"attention/{kind}/{layer}" in given
            ],
            default=None,
        ),
    }


def other_errors(name, given):
    """Returns the errors of logits, loss and search of a language model, or of a classifier."""
    model, arrays, extra, _ = golden.other(name)
    model_with(model, given)
    batch = {side: arrays[side] for side in ("inputs", "targets") if side in arrays}
    logits = compiled(model)(batch)
    loss, weight = model.loss_sums(logits, batch["targets"], model.hp.label_smoothing)
    errors = {
        "logits": golden.relative_error(logits, arrays["logits"]),
        "loss": golden.relative_error(loss / weight, arrays["loss"]),
    }
    if name == golden.OTHERS[1]:
        wanted = arrays["beam/outputs"], arrays["beam/scores"]
        errors["search"] = search_error(model, arrays["prompts"], extra, *wanted)
    return errors


def gradient_error(given):
    """Returns the error of the gradients of all variables, on JAX compiled together."""
    case = golden.load(DIFFERENTIATED)
    model = model_with(case.new_model(), given)
    batch = batch_of(case.arrays)

    def loss(trainable):
        logits, _ = model.stateless_call(trainable, [], batch, training=True)
        return loss_of(logits, batch, case.hp)

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


def loss_of(logits, batch, hp):
    numerator, denominator = t2t.losses.padded_cross_entropy(
        logits, batch["targets"], hp.label_smoothing
    )
    return numerator / denominator


def update_errors(given):
    """Returns, after three steps of the example, how many elements are off and the largest error."""
    case = golden.load(UPDATED)
    model = model_with(case.new_model(), given)
    optimizer = t2t.optimizers.create(case.hp)
    schedule = t2t.schedules.learning_rate_schedule(case.hp)
    optimizer.learning_rate = lambda: schedule(optimizer.iterations + golden.FIRST_STEP)
    batch = batch_of(case.arrays)
    if BACKEND == "jax":
        state = on_jax.initial_state(model, optimizer)
        step = on_jax.training_step(model, optimizer)
        for _ in range(3):
            _, state = step(state, batch)
        on_jax.put_back(model, optimizer, state)
    else:
        model.compile(optimizer)
        for _ in range(3):
            model.train_on_batch(batch)
    wanted = case.variables("after3")
    away = np.concatenate(
        [
            np.abs(keras.ops.convert_to_numpy(variable) - wanted[name]).ravel()
            for name, variable in t2t.checkpoints.t2t_variables(model).items()
        ]
    )
    return {
        "updates off": float(np.mean(away > golden.RELATIVE)),
        "furthest update": float(away.max() / (3 * case.arrays["learning_rates"].max())),
    }


def decoding_errors(given):
    """Returns the error of the logits of two equal hypotheses, decoded step by step."""
    case = golden.load(UPDATED)
    model = model_with(case.new_model(), given)
    batch = batch_of(case.arrays)
    source = model.encode_source(batch["inputs"])
    kernels = model.step_kernels()
    caches = model.empty_caches(len(batch["inputs"]))
    last_ids = np.zeros((len(batch["inputs"]), 2), np.int32)
    logits = []
    for position in range(POSITIONS):
        step = compiled(functools.partial(model.decode_step, position=position, source=source))
        step_logits, caches = step(last_ids, caches=caches, kernels=kernels)
        step_logits = keras.ops.convert_to_numpy(step_logits)
        logits.append(step_logits[..., : model.target_vocab_size])
        last_ids = np.repeat(batch["targets"][:, position, None], 2, axis=1)
    wanted = np.repeat(case.arrays["logits"][:, :POSITIONS, None], 2, axis=2)
    return {"decoding": golden.relative_error(np.stack(logits, 1), wanted)}


def search_error(model, inputs, extra_length, wanted, wanted_scores):
    """Returns the error of the scores of a beam search, infinity if the ids are not T2T's."""
    ids, scores = t2t.decoding.beam_search(model, inputs, extra_length=extra_length, top_beams=4)
    if golden.up_to_eos(keras.ops.convert_to_numpy(ids)) != golden.up_to_eos(wanted):
        return float("inf")
    return golden.relative_error(scores, wanted_scores)


def release_error(given):
    model, expected = golden.new_release_model()
    model_with(model, given)
    return golden.relative_error(compiled(model)(batch_of(expected)), expected["logits"])


def packed_error(pos):
    """Returns the error of packed rows, beside the network in NumPy."""
    model = networks.small_model(f"pos={pos}")
    logits = keras.ops.convert_to_numpy(compiled(model)(PACKED))
    wanted = numpy_transformer.logits(
        t2t.checkpoints.t2t_variables(model),
        model.hp,
        PACKED["inputs"],
        PACKED["targets"],
        model.source_vocab_size,
        model.target_vocab_size,
        packing=PACKED,
    )
    tokens = PACKED["targets"] != 0
    return golden.relative_error(logits[tokens], wanted[tokens])


def model_with(model, arrays):
    """The model, with the variables of T2T's checkpoint."""
    variables = {n: a for n, a in arrays.items() if not n.startswith("attention/")}
    t2t.checkpoints.t2t.assign(model, variables, "given")
    return model


def batch_of(arrays):
    return {side: np.asarray(arrays[side], np.int32) for side in ("inputs", "targets")}


if __name__ == "__main__":
    main()
