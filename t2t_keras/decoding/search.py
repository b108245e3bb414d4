"""Beam search, greedy and sampled decoding, with all their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.decode_settings import (
    DECODE_SETTINGS,
    DecodeSettings,
    require_compilable,
    require_memory,
)
from t2t_keras.decoding.beam import BeamSearch, OnePath, most_likely
from t2t_keras.decoding.logits import (
    Constraint,
    LogitsProcessor,
    after_prompts,
    forced_prompts,
    keep_top_k_top_p,
    named_processors,
)
from t2t_keras.decoding.loop import DecodeLoop, Strategy
from t2t_keras.decoding.static_search import StaticSearch
from t2t_keras.errors import UserError
from t2t_keras.model_kinds import LANGUAGE_MODEL
from t2t_keras.open_graph import open_graph_of_model
from t2t_keras.precision import Int8Model


class SearchOptions(NamedTuple):
    """All options of a search in one object.

    The fields are the arguments of `beam_search`, `greedy` and `sample`, which explain them.
    """

    beam_size: int = 0  # K; 0: one hypothesis per sentence, greedy or sampled
    top_beams: int = 1  # K'
    alpha: Any = 0.6
    extra_length: Any = 100
    max_lengths: Any = None  # [B] int32, or None: S + extra_length
    min_length: int = 0
    prefix: Any = None  # [B, P] int32, or None
    seed: Any = None  # for sampling; None: greedy
    temperature: Any = 1.0
    top_k: int = 0
    top_p: Any = 1.0
    logits_processors: tuple[LogitsProcessor, ...] = ()
    constraint: Any = (
        None  # a `Constraint`, which `for_texts` turns into a logits processor; or None
    )
    xla: bool = False

    @classmethod
    def from_settings(
        cls,
        settings: DecodeSettings,
        more: Sequence[LogitsProcessor] = (),
        constraint: Constraint | None = None,
    ):
        """Returns the options that the decode hparams specify.

        Args:
            settings: the decode hparams.
            more: logits processors that run after those of the settings.
            constraint: what the problem allows, used according to `constrained`.

        Raises:
            UserError: an unknown logits processor, or a constraint with XLA.
        """
        searches = settings.beam_size > 1
        wanted = settings.constrained in ("always", "beam" if searches else "always")
        constraint = constraint if wanted else None
        if settings.xla and constraint:
            raise UserError(
                "XLA cannot compile a constrained search: leave out xla, or add constrained=never."
            )
        return cls(
            beam_size=settings.beam_size if searches else 0,
            top_beams=settings.beam_size if searches and settings.return_beams else 1,
            alpha=settings.alpha,
            extra_length=settings.extra_length,
            min_length=settings.min_length,
            seed=settings.sampling_seed if settings.sampling_method == "random" else None,
            temperature=settings.sampling_temp,
            top_k=max(0, settings.sampling_keep_top_k),
            top_p=settings.sampling_keep_top_p,
            logits_processors=(*named_processors(settings.logits_processors), *more),
            constraint=constraint,
            xla=settings.xla,
        )

    def for_texts(self, texts) -> SearchOptions:
        """Returns the options with the constraint for a batch of texts [B]."""
        return self._replace(constraint=self.constraint and self.constraint(texts))

    def for_graph(self, inputs) -> SearchOptions:
        """Returns the options with tensors for all values that may change between calls of one graph.

        `max_lengths` is set for every sentence; options that the search does not use are None.
        """
        options = self._replace(
            extra_length=None,
            max_lengths=output_limits(inputs, self.extra_length, self.max_lengths),
            prefix=None if self.prefix is None else as_ids(self.prefix),
            alpha=tf.convert_to_tensor(self.alpha, tf.float32) if self.beam_size else None,
        )
        if self.seed is None:
            return options._replace(temperature=None, top_k=0, top_p=None)
        return options._replace(
            seed=tf.cast(self.seed, tf.int64),
            temperature=tf.cast(self.temperature, tf.float32),
            top_p=None if self.top_p == 1 else tf.cast(self.top_p, tf.float32),
        )


def beam_search(
    model,
    inputs,
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    extra_length: int = 100,
    top_beams: int = 1,
    max_lengths=None,
    min_length: int = 0,
    prefix=None,
    logits_processors: Sequence[LogitsProcessor] = (),
    xla: bool = False,
):
    """Decodes with beam search (section 6.1 of the paper; T2T's `beam_search`).

    A finished hypothesis of n tokens scores log p / ((5 + n) / 6)^alpha. The search of a sentence
    ends when no alive hypothesis can beat its best finished one (with top_beams > 1: its worst
    finished one), or at its maximum length. A sentence without a finished hypothesis returns its
    alive ones with their plain log p, as in T2T. The result for a sentence does not depend on the
    others, except through the padded length S.

    A language model continues prompts, which have no end of sentence: each is forced like a `prefix`,
    and only what follows it is returned. `extra_length` counts from the end of each prompt.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0; for a language model,
            prompts [B, P], padded with 0.
        beam_size: K.
        alpha: weight of the length penalty; below 0 it favours short outputs, and a search may
            end before the best is found.
        extra_length: an output has at most S + extra_length tokens, S with padding.
        top_beams: K', the number of hypotheses to return, at most K.
        max_lengths: [B] int, the maximum length of each output, instead of S + extra_length.
        min_length: minimum number of tokens before the end of sentence.
        prefix: [B, P] int, padded with 0: the first tokens of the outputs. Their log p is 0, and they
            count in the length of the penalty.
        logits_processors: functions `process(logits, step)` from logits [b, K, V] float32 and a
            `SearchStep` to logits of the same shape; new functions need a new graph.
        xla: True compiles with XLA, in fixed shapes (`static_search.py`), without logits_processors.

    Returns:
        ids [B, K', L] int32, best first, 0 after the first end of sentence, and scores
        [B, K'] float32.

    Raises:
        UserError: `top_beams` or `alpha` is out of range. (The value of a tensor is not checked.)
    """
    BeamSearch(beam_size, top_beams, alpha)  # checks the ranges
    options = SearchOptions(
        beam_size=beam_size,
        top_beams=top_beams,
        alpha=alpha,
        extra_length=extra_length,
        max_lengths=max_lengths,
        min_length=min_length,
        prefix=prefix,
        logits_processors=tuple(logits_processors),
        xla=xla,
    )
    return decode(model, inputs, options)


def greedy(
    model,
    inputs,
    *,
    extra_length: int = 100,
    max_lengths=None,
    min_length: int = 0,
    prefix=None,
    logits_processors: Sequence[LogitsProcessor] = (),
    xla: bool = False,
):
    """Decodes by choosing the most likely token at every step: T2T's `_greedy_infer`.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        extra_length: an output has at most S + extra_length tokens, S with padding.
        max_lengths: [B] int, the maximum length of each output, instead of S + extra_length.
        min_length: minimum number of tokens before the end of sentence.
        prefix: [B, P] int, padded with 0: the first tokens of the outputs, with log p 0.
        logits_processors, xla: see `beam_search`.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32: the sum of
        the log-probabilities up to and including it.
    """
    options = SearchOptions(
        extra_length=extra_length,
        max_lengths=max_lengths,
        min_length=min_length,
        prefix=prefix,
        logits_processors=tuple(logits_processors),
        xla=xla,
    )
    ids, scores = decode(model, inputs, options)
    return ids[:, 0], scores[:, 0]


def sample(
    model,
    inputs,
    *,
    seed: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    extra_length: int = 100,
    max_lengths=None,
    min_length: int = 0,
    prefix=None,
    logits_processors: Sequence[LogitsProcessor] = (),
):
    """Draws every token from the model's distribution (T2T's `sampling_method` "random").

    The same seed draws the same output for a sentence at the same position in the batch.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        seed: an int or a scalar int tensor.
        temperature: divides the logits (T2T's `sampling_temp`); below 1, likely tokens become likelier.
        top_k: sample from the k most likely tokens (T2T's `sampling_keep_top_k`); 0 means all.
        top_p: sample from the most likely tokens that together reach this probability (nucleus
            sampling); 1 means all.
        extra_length: an output has at most S + extra_length tokens, S with padding.
        max_lengths: [B] int, the maximum length of each output, instead of S + extra_length.
        min_length: minimum number of tokens before the end of sentence.
        prefix: [B, P] int, padded with 0: the first tokens of the outputs, with log p 0.
        logits_processors: see `beam_search`.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32: the
        log-probability of each without temperature, top_k and top_p.

    Raises:
        UserError: `temperature`, `top_k` or `top_p` is out of range.
    """
    DECODE_SETTINGS["sampling_temp"].checked("temperature", temperature, what="")
    if top_k < 0:
        raise UserError(f"top_k must be 0 or more, got {top_k}.")
    if not 0 < top_p <= 1:
        raise UserError(f"top_p must be in (0, 1], got {top_p}.")
    options = SearchOptions(
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        extra_length=extra_length,
        max_lengths=max_lengths,
        min_length=min_length,
        prefix=prefix,
        logits_processors=tuple(logits_processors),
    )
    ids, scores = decode(model, inputs, options)
    return ids[:, 0], scores[:, 0]


def decode(model, inputs, options: SearchOptions):
    """Decodes with the given options: the common entry of beam search, greedy and sampled decoding.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.

    Returns:
        ids [B, K', L] int32 and scores [B, K'] float32. K' is 1 if `beam_size` is 0.

    Raises:
        UserError: the search needs more memory than the machine has or cannot be compiled with XLA,
            or a prefix is given for a language model.
    """
    require_compilable(options.xla, options.seed is not None, options.logits_processors)
    if options.xla and any(isinstance(m, Int8Model) for m in model.members):
        raise UserError("XLA has no 8-bit products: leave out xla or precision int8.")
    inputs = as_ids(inputs)
    longest = options.extra_length if options.max_lengths is None else options.max_lengths
    longest = 0 if tf.is_tensor(longest) else int(np.max(longest, initial=0))
    require_memory(model, max(1, options.beam_size), longest, inputs.shape[0] or 1)
    if model.kind == LANGUAGE_MODEL:
        prefix, limits = forced_prompts(
            inputs, options.prefix, options.max_lengths, options.extra_length
        )
        options = options._replace(prefix=prefix, max_lengths=limits)
    return _decode(model, inputs, options.for_graph(inputs))


@open_graph_of_model
def _decode(model, inputs, options: SearchOptions):
    batch = tf.shape(inputs)[0]
    if options.beam_size:
        strategy: Strategy = BeamSearch(
            options.beam_size,
            options.top_beams,
            options.alpha,
            options.min_length,
            grows=not options.xla,
        )
    elif options.seed is None:
        strategy = OnePath(options.min_length, most_likely, grows=not options.xla)
    else:
        strategy = OnePath(options.min_length, sampler(batch, options))
    if options.xla:
        search: Any = StaticSearch(model, strategy)
    else:
        search = DecodeLoop(model, strategy, options.logits_processors, options.constraint)
    ids, scores = search.run(inputs, options.max_lengths, options.prefix)
    if model.kind == LANGUAGE_MODEL:
        ids = after_prompts(ids, inputs)
    return ids, scores


def sampler(batch, options: SearchOptions):
    """Returns a function that samples tokens from the softmax of logits [b, 1, V].

    The argmax of logits plus Gumbel noise is a sample from their softmax. Each step draws noise for
    the whole batch, so that finished sentences change nothing for the others.
    """

    def draw(logits, i, rows):
        logits = keep_top_k_top_p(logits / options.temperature, options.top_k, options.top_p)
        seed = tf.stack([options.seed, tf.cast(i, tf.int64)])
        uniform = tf.random.stateless_uniform([batch, 1, logits.shape[2]], seed, minval=1e-20)
        noise = -tf.math.log(-tf.math.log(tf.gather(uniform, rows)))  # [B, 1, V] -> [b, 1, V]
        return tf.argmax(logits + noise, -1, tf.int32)

    return draw


def output_limits(inputs, extra_length, max_lengths):
    """Returns the maximum length of each output, [B] int32: `max_lengths`, or T2T's S + extra_length."""
    batch, source_length = tf.unstack(tf.shape(inputs))
    if max_lengths is None:
        return tf.fill([batch], tf.maximum(source_length + tf.cast(extra_length, tf.int32), 0))
    return tf.ensure_shape(tf.cast(max_lengths, tf.int32), [None]) + tf.zeros([batch], tf.int32)


def as_ids(ids) -> Any:
    """Converts anything array-like to int32 token ids."""
    return tf.cast(tf.convert_to_tensor(ids), tf.int32)
