"""Training on Keras's JAX backend, without TensorFlow: reversing rows of numbers.

A step is one compiled function of the state and a batch. The state is everything that changes: weights,
the random state of dropout, and the optimizer's variables.
"""

import functools
import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

import t2t_keras as t2t

SETTINGS = (
    "transformer_tiny,hidden_size=64,filter_size=128,"
    "learning_rate_constant=1.0,learning_rate_warmup_steps=100"
)
VOCAB = 16


def initial_state(model, optimizer):
    """The values of all variables, in three lists."""
    optimizer.build(model.trainable_variables)
    kinds = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    return [[variable.value for variable in variables] for variables in kinds]


def training_step(model, optimizer):
    """Returns a function from a state and a batch to the loss and the next state."""

    def loss_of(trainable, others, batch):
        logits, others = model.stateless_call(trainable, others, batch, training=True)
        loss, tokens = t2t.losses.padded_cross_entropy(
            logits, batch["targets"], model.hp.label_smoothing
        )
        return loss / tokens, others

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, batch):
        trainable, others, slots = state
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, others), gradients = gradient(trainable, others, batch)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return loss, [trainable, others, slots]

    return step


def put_back(model, optimizer, state):
    """Assigns a state to the variables of model and optimizer, whose old values were donated."""
    kinds = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    for variables, values in zip(kinds, state, strict=True):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def batch_of_rows(random, rows=64, length=8):
    """Numbers from 2 on, followed by 1, and the same reversed."""
    ids = random.integers(2, VOCAB, (rows, length))
    ends = np.ones((rows, 1), np.int64)
    sides = {"inputs": ids, "targets": ids[:, ::-1]}
    return {side: np.concatenate([x, ends], 1).astype(np.int32) for side, x in sides.items()}


def main(steps: int = 400):
    """Trains; returns the model and the losses."""
    keras.utils.set_random_seed(0)
    hp = t2t.registry.hparams(SETTINGS)
    model = t2t.Transformer(hp, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    optimizer = t2t.optimizers.create(hp)
    state, step = initial_state(model, optimizer), training_step(model, optimizer)
    random = np.random.default_rng(0)
    losses = []
    for number in range(steps):
        loss, state = step(state, batch_of_rows(random))
        losses.append(float(loss))
        if number % 100 == 99:
            print(f"step {number + 1}: loss {np.mean(losses[-100:]):.3f}", flush=True)
    put_back(model, optimizer, state)
    return model, losses


if __name__ == "__main__":
    main()
