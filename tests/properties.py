"""What tests/test_properties.py draws: how many examples of which seed, small networks, damaged files.

By hand, `PROPERTY_SCALE=10 PROPERTY_SEED=1` tries ten times as many others.
"""

import functools
import random

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from mutations import SCALE, SEED
from networks import RELATIVE, small_model
from subclasses import CHANGED

import t2t_keras as t2t


def holds(examples, **drawn):
    """Makes a property of a test: it holds for so many examples of what is drawn."""
    chosen = settings(
        max_examples=examples * SCALE,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # to make an example smaller takes minutes
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: seed(SEED)(chosen(given(**drawn)(test)))


DECODERS = (
    ("", "layer_preprocess_sequence=none,layer_postprocess_sequence=dan", "layer_postprocess_sequence=dan"),
    ("", "pos=timing_paper", "pos=emb,max_length=5", "pos=none"),
    ("", "attention_key_channels=8,attention_value_channels=24", f"{RELATIVE}1", f"{RELATIVE}3,hidden_size=15,num_heads=3"),
    ("", "", "proximity_bias=true"),
    ("", "num_decoder_layers=2", "num_hidden_layers=2"),
    ("", "shared_embedding_and_softmax_weights=false", "shared_embedding=true"),
    ("", "", "vocab_divisor=8"),
    ("", "", "multiply_embedding_mode=none"),
)  # fmt: skip
ENCODERS = (
    ("", "", "unidirectional_encoder=true"),
    ("", "use_target_space_embedding=false"),
    ("", "use_pad_remover=false"),
    *[("", "", "", "prepend_mode=prepend_inputs_full_attention", "prepend_mode=prepend_inputs_masked_attention")],
)  # fmt: skip


def _network(chance):
    """Overrides, the part that a subclass overrides, and the seed of the weights."""
    overrides = ",".join(filter(None, map(chance.choice, DECODERS + ENCODERS)))
    return overrides, chance.choice([None, None, *CHANGED]), chance.randrange(100)


_CHANCE = random.Random(f"networks {SEED}")
NETWORKS = st.sampled_from([_network(_CHANCE) for _ in range(12 * SCALE)])
"""Few, each for many examples: to make a model takes as long as a search."""


@functools.cache
def network(drawn, size=4, target_only=False):
    """The model of `NETWORKS` with vocabularies of this size; a language model has targets alone."""
    overrides, part, number = drawn
    if target_only:
        overrides = overrides.partition(",prepend_mode")[0]
        part = part if part != "memory" else None
    return small_model(
        overrides,
        None if target_only else size,
        size,
        model_class=CHANGED.get(part, t2t.Transformer),
        seed=number,
        spread=3.0 - number % 3,
        ending=number % 4 / 2 - 0.5,
    )


def log_p_of(model, source, targets):
    """log p of every token [N, T, V] by one call for whole sequences, of one source."""
    batch = {"targets": np.asarray(targets, np.int32)}
    if model.kind == "translation":
        batch["inputs"] = np.tile(np.asarray(source, np.int32), (len(targets), 1))
    return tf.nn.log_softmax(model(batch)).numpy()


def every_output(model, source, limit, forced):
    """{ids: log p of each} of all outputs with an end or of `limit` tokens; the forced ones first, of log p 0."""
    rows = [()]
    for place in range(limit):
        tokens = forced[place : place + 1] or range(model.num_logits)
        rows = [r for row in rows for r in ([row] if 1 in row else [(*row, t) for t in tokens])]
    log_p = log_p_of(model, source, [row + (0,) * (limit - len(row)) for row in rows])
    return {
        row: [0.0 if i < len(forced) else float(own[i, t]) for i, t in enumerate(row)]
        for row, own in zip(rows, log_p, strict=True)
    }
