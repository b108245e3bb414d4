"""Functions that change what a search chooses from: logits, or candidates taken from them.

A logits processor is a function `process(logits, step)` that returns changed logits of the same shape.
It runs before normalisation, so that scores are log-probabilities under the changed distribution.
`beam_search`, `greedy`, `sample` and `Translator` take any number of them;
`registry.register_logits_processor` names one for `--decode_hparams=logits_processors=NAME:VALUE`.

Minimum length, prefix, top-k and top-p are not processors: they narrow the choice without changing the
model's scores, and in beam search they work on the few best tokens instead of the whole vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.shape import shape_of, take

INFINITY = 1e7
"""T2T's negated score of impossible choices. (-inf would give NaN where scores are subtracted.)"""

NOT_FORCED = -1e9
"""T2T's log p of every token except a forced one: below `-INFINITY`, so never kept."""


class SearchStep(NamedTuple):
    """The state of the search when it calls a logits processor.

    Args:
        i: number of tokens chosen so far, a scalar int32 tensor.
        ids: these tokens, [b, K, i] int32. K is 1 in greedy and sampled decoding; b is the number of
            unfinished sentences.
        rows: [b] int32, the positions of these sentences in the batch.
        limits: [b] int32, the maximum length of their outputs in tokens.
    """

    i: Any
    ids: Any
    rows: Any
    limits: Any


LogitsProcessor = Callable[[Any, SearchStep], Any]
"""`process(logits, step)`: logits [b, K, V] float32 -> [b, K, V]. V may be rounded up to a multiple of
64, with logits of -1e9 there. A processor may be a NamedTuple that holds tensors of the batch, [B, ...]."""


Constraint = Callable[[Any], LogitsProcessor]
"""Makes a logits processor for the texts of a batch, a list or a tensor [B]: see `Problem.constraint`."""


def process_logits(logits, processors: Sequence[LogitsProcessor], step: SearchStep):
    """Applies logits processors to logits [b, K, V], in the given order."""
    import tensorflow as tf  # here and in `keep_top_k_top_p`, which a search on JAX does not call

    for process in processors:
        logits = tf.ensure_shape(process(logits, step), logits.shape)
    return logits


def named_processors(text: str) -> tuple[LogitsProcessor, ...]:
    """Creates the processors that the decode hparam `logits_processors` names.

    Args:
        text: "NAME:VALUE", or several as "[NAME:VALUE,NAME:VALUE]"; ":VALUE" may be left out if the
            registered function has a default. "" means none.

    Raises:
        UserError: an unknown name, a value that is not a number, or a missing value.
    """
    items = text.strip().removeprefix("[").removesuffix("]").split(",")
    return tuple(_named_processor(item.strip()) for item in items if item.strip())


def _named_processor(item: str) -> LogitsProcessor:
    name, colon, value = item.partition(":")
    make = registry.logits_processor(name)
    try:
        if colon and not math.isfinite(float(value)):
            raise ValueError(f"{value} is not finite")
        return make(float(value)) if colon else make()
    except (TypeError, ValueError) as error:
        raise UserError(
            f"logits processor {item!r} cannot be created ({error}): write {name}:NUMBER."
        ) from error


def forbid_early_end(values, tokens, i, min_length: int):
    """Makes the end of sentence impossible before `min_length` tokens.

    Args:
        values: [b, K, n] float32, logits or log-probabilities.
        tokens: [b, K, n] or [n] int32, the tokens that they belong to.
        i: number of tokens chosen so far.
    """
    if not min_length:
        return values
    # Subtracted, not selected: on [b, 1, V] a sum broadcasts fast, `where` does not.
    forbidden = (tokens == EOS_ID) & (i < min_length)
    return values - INFINITY * ops.cast(forbidden, "float32")


def force_prefix(tokens, log_p, forced):
    """Replaces candidates by the next token of a prefix, with log p 0 as in T2T.

    Args:
        tokens: [b, ..., n] int32, n candidates for the next token.
        log_p: [b, ..., n] float32.
        forced: [b, ..., 1] int32, the token that must come next; 0 where any may come.

    Returns:
        tokens and log_p. A forced token is the first candidate, with log p 0.0, and the other n - 1
        are impossible.
    """
    others = tokens.shape[-1] - 1
    is_free = forced == PAD_ID
    forced_tokens = ops.pad(forced, [[0, 0]] * (len(forced.shape) - 1) + [[0, others]])
    forced_log_p = ops.convert_to_tensor([0.0] + [NOT_FORCED] * others, log_p.dtype)  # [n]
    return ops.where(is_free, tokens, forced_tokens), ops.where(is_free, log_p, forced_log_p)


# Prompts of a language model: forced like a prefix, but not returned


def forced_prompts(prompts, prefix, max_lengths, extra_length):
    """Returns prompts [B, P] as the prefix of a search, and maximum lengths [B] including the prompts.

    Raises:
        UserError: a prefix is given, too.
    """
    if prefix is not None:
        raise UserError("a language model continues its prompts: add the prefix to them.")
    if max_lengths is None:
        max_lengths = prompt_lengths(prompts) + extra_length
    return prompts, max_lengths


def prompt_lengths(prompts):
    """Returns the length [B] int32 of each prompt [B, P] without trailing padding."""
    prompts = ops.pad(prompts, [[0, 0], [0, 1]])  # at least one column
    places = ops.arange(1, shape_of(prompts)[1] + 1, dtype="int32")
    return ops.max(ops.where(prompts != PAD_ID, places, 0), axis=1)


def after_prompts(ids, prompts):
    """Returns what follows each prompt [B, P] in ids [B, K', P + L]: [B, K', L]."""
    (batch, hypotheses, width), lengths = shape_of(ids), prompt_lengths(prompts)
    longest = ops.maximum(width - ops.min(lengths, initial=2**30), 0)
    places = ops.minimum(lengths[:, None] + ops.arange(longest, dtype="int32"), width)  # [B, L]
    places = ops.broadcast_to(places[:, None], (batch, hypotheses, longest))
    return take(ops.pad(ids, [[0, 0], [0, 0], [0, 1]]), places)


def keep_top_k_top_p(logits, top_k: int, top_p):
    """Makes all tokens impossible except the nucleus of `top_p` among the `top_k` best.

    Args:
        logits: [..., V]; a low temperature may have spread them beyond any fixed -INFINITY.
        top_k: number of tokens to keep; 0 keeps all.
        top_p: total probability that the kept tokens must reach; None keeps all.
    """
    import tensorflow as tf

    vocab_size = logits.shape[-1]
    if top_k and top_k < vocab_size:
        least = tf.math.top_k(logits, top_k).values[..., -1:]
        logits = tf.where(logits < least, tf.float32.min, logits)
    if top_p is not None:
        ordered = tf.math.top_k(logits, vocab_size).values  # [..., V], best first
        p = tf.nn.softmax(ordered)
        before = tf.cumsum(p, axis=-1, exclusive=True)  # 0 for the best token, which always stays
        least = tf.reduce_min(tf.where(before < top_p, ordered, tf.float32.max), -1, keepdims=True)
        logits = tf.where(logits < least, tf.float32.min, logits)
    return logits
