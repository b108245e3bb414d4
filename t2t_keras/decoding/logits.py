"""Functions that change what a search chooses from: logits, or candidates taken from them.

A logits processor is a function `process(logits, step)` that returns changed logits of the same shape.
It runs before normalisation, so that scores are log-probabilities under the changed distribution.
`beam_search`, `greedy`, `sample` and `Translator` take any number of them;
`registry.register_logits_processor` names one for `--decode_hparams=logits_processors=NAME:VALUE`.

Minimum length, prefix, top-k and top-p are not processors: they narrow the choice without changing the
model's scores, and in beam search they work on the few best tokens instead of the whole vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from t2t_keras.ids import PAD_ID
from t2t_keras.shape import shape_of, take


class SearchStep(NamedTuple):
    """The state of the search when it calls a logits processor.

    K is 1 in greedy and sampled decoding; b is the number of unfinished sentences.
    """

    i: Any  # [] int32, number of tokens chosen so far
    ids: Any  # [b, K, i] int32, these tokens
    rows: Any  # [b] int32, the positions of the sentences in the batch
    limits: Any  # [b] int32, the maximum length of their outputs in tokens


LogitsProcessor = Callable[[Any, SearchStep], Any]
"""`process(logits, step)`: logits [b, K, V] float32 -> [b, K, V]. V may be rounded up to a multiple of
64, with logits of -1e9 there. A processor may be a NamedTuple that holds tensors of the batch, [B, ...]."""

Constraint = Callable[[Any], Callable[[Any, SearchStep], Any]]
"""Makes a function for the texts of a batch, a list or a tensor [B]; it has the arguments of a logits
processor and returns which tokens may come next, [b, K, V] bool. See `Problem.constraint`."""


def forced_candidates(tokens, log_p, possible, forced):
    """Replaces candidates by the next token of a prefix, with log p 0 as in T2T.

    Args:
        tokens: [b, ..., n] int32, n candidates for the next token.
        log_p: [b, ..., n] float32.
        possible: [b, ..., n] bool, or True.
        forced: [b, ..., 1] int32, the token that must come next; 0: any may come, -1: token 0 must.

    Returns:
        tokens, log_p and possible: a forced token is the first candidate, and the only possible one.
    """
    is_free, is_first = forced == PAD_ID, ops.arange(tokens.shape[-1], dtype="int32") == 0
    return (
        ops.where(is_free, tokens, ops.maximum(forced, PAD_ID)),
        ops.where(is_free, log_p, 0.0),
        ops.where(is_free, possible, is_first),
    )


# Prompts of a language model: forced like a prefix, but not returned


def prompt_lengths(prompts):
    """Returns the length [B] int32 of each prompt [B, P] without trailing padding."""
    prompts = ops.pad(prompts, [[0, 1], [0, 1]])  # at least one column and, for PyTorch, one row
    places = ops.arange(1, shape_of(prompts)[1] + 1, dtype="int32")
    return ops.max(ops.where(prompts != PAD_ID, places, 0), axis=1, initial=0)[:-1]


def forced_by(prompts):
    """Returns prompts [B, P] with -1 for each 0 that other ids follow: it is forced, too, as in T2T."""
    inner = ops.arange(shape_of(prompts)[1], dtype="int32") < prompt_lengths(prompts)[:, None]
    return ops.where(inner & (prompts == PAD_ID), -1, prompts)


def after_prompts(tokens, prompts):
    """Returns what follows each prompt [B, P] in ids or scores [B, K', P + L]: [B, K', L]."""
    (batch, hypotheses, width), lengths = shape_of(tokens), prompt_lengths(prompts)
    longest = ops.maximum(width - ops.min(lengths, initial=2**30), 0)
    places = ops.minimum(lengths[:, None] + ops.arange(longest, dtype="int32"), width)  # [B, L]
    places = ops.broadcast_to(places[:, None], (batch, hypotheses, longest))
    return take(ops.pad(tokens, [[0, 0], [0, 0], [0, 1]]), places)


def keep_top_k_top_p(logits, top_k: int, top_p):
    """Makes all tokens impossible except the nucleus of `top_p` among the `top_k` best.

    Args:
        logits: [..., V].
        top_k: number of tokens to keep; 0 keeps all.
        top_p: total probability that the kept tokens must reach; None keeps all.
    """
    vocab_size = logits.shape[-1]
    if top_k and top_k < vocab_size:
        least = ops.top_k(logits, top_k)[0][..., -1:]
        logits = ops.where(logits < least, -math.inf, logits)
    if top_p is not None:
        ordered = ops.top_k(logits, vocab_size)[0]  # [..., V], best first
        p = ops.softmax(ordered)
        before = ops.cumsum(p, -1) - p  # 0 for the best token, which always stays
        least = ops.min(ops.where(before < top_p, ordered, math.inf), -1, keepdims=True)
        logits = ops.where(logits < least, -math.inf, logits)
    return logits
