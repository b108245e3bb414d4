"""Beam search, greedy and sampled decoding: one entry, with all options."""

import contextlib
import functools
import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from t2t_keras import registry
from t2t_keras.decode_settings import DecodeSettings, require_compilable
from t2t_keras.decoding.beam import BeamSearch, Draw, OnePath, SearchResult, most_likely
from t2t_keras.decoding.logits import LogitsProcessor, after_prompts, forced_by, prompt_lengths
from t2t_keras.decoding.static_search import StaticSearch
from t2t_keras.errors import UserError, explained, nearest, require_kind
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL, Model
from t2t_keras.precision import cache_of, in_8_bits, kept_kernels
from t2t_keras.shape import FEW_ROWS, ON_TENSORFLOW, grown, shape_of, written

if ON_TENSORFLOW:
    from t2t_keras.decoding.loop import in_a_graph, without_gradient


def search(
    model: Model,
    inputs,
    options: DecodeSettings | None = None,
    *,
    beams: bool | None = None,
    top_beams: int | None = None,
    max_lengths=None,
    prefix=None,
    logits_processors: Sequence[LogitsProcessor] = (),
    constraint=None,
    strategy=None,
    alpha=None,
    seed=None,
) -> SearchResult:
    """Decodes with beam search, greedily or by sampling, as the options say; returns a `SearchResult`.

    A sentence depends on the others only through the padded length S: its limit is S + `extra_length`, and
    a source without tokens attends to padding.

    A language model continues prompts, which have no end of sentence: each is forced like a `prefix`,
    and only what follows it is returned. `extra_length` counts from the end of each prompt.

    Called eagerly in TensorFlow, it has no gradient: to train on what it found, give that to the model.

    On JAX and PyTorch, and with `xla`, tensors have fixed sizes (`static_search.py`), and there are neither
    logits processors nor constraints nor, with `xla`, samples. On JAX, call it outside `jax.jit`.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0; for a language model,
            prompts [B, P], padded with 0.
        options: the decode hparams.
        beams: True for beam search, also with a `beam_size` of 1; by default that is greedy search.
        top_beams: K', the number of hypotheses to return, at most `beam_size`; by default all of them
            with `return_beams`, else 1.
        max_lengths: [B] int, the longest outputs, with their prompts, instead of S + `extra_length`.
        prefix: [B, P] int, padded with 0: the first tokens of the outputs. Their log p is 0, and they
            count in the length of the penalty.
        logits_processors: functions `process(logits, step)` from logits [b, K, V] float32 and a
            `SearchStep` to new logits, after those of the options; new functions need a new graph.
        constraint: what a `logits.Constraint` returned for these inputs: which tokens may come next.
        strategy: a NamedTuple that makes another strategy for a request: `constraints.Phrases`.
        alpha, seed: numbers or scalar tensors, instead of the options': others need no new graph.

    Raises:
        UserError: the model has no targets, the search needs more memory than the machine has or
            cannot be compiled, or a prefix is given for a language model.
    """
    options = DecodeSettings() if options is None else options
    require_kind("options", options, DecodeSettings, "DecodeSettings")
    most = options.beam_size
    beam_size = 0 if not beams and most == 1 else most
    if top_beams is None:
        top_beams = most if options.return_beams else 1
    top_beams = int(top_beams)  # one of NumPy would become a tensor
    alpha = options.alpha if alpha is None else alpha
    if not 1 <= top_beams <= most:
        raise UserError(f"top_beams must be from 1 to beam_size={most}, got {top_beams}.")
    if beam_size and not ops.is_tensor(alpha) and not math.isfinite(alpha):
        raise UserError(f"alpha must be a number, got {alpha}.")
    processors = (*named_processors(options.logits_processors), *logits_processors)
    is_random = options.sampling_method == "random"
    if options.xla or not ON_TENSORFLOW:
        only = {"logits_processors": processors, "a constraint": constraint}
        require_compilable({**only, "precision int8": in_8_bits(model)})
    if model.kind == CLASSIFICATION:
        raise UserError("a classifier has no outputs to search for: call it, or use `Classifier`.")
    of_source = model.source_vocab_size or model.target_vocab_size
    inputs = int_tensor("inputs", inputs, "ids [B, S], padded with 0", [2], size=of_source)
    rows = inputs.shape[0]
    if prefix is not None:
        of_target = model.target_vocab_size
        prefix = int_tensor("prefix", prefix, "ids [B, P], padded with 0", [2], rows, of_target)
        prefix = ops.broadcast_to(prefix, (shape_of(inputs)[0], shape_of(prefix)[1]))
    limits = max_lengths
    if max_lengths is not None:
        limits = int_tensor("max_lengths", max_lengths, "[B]", [0, 1], rows)
    longest = options.extra_length if max_lengths is None else max_lengths
    longest = 0 if ops.is_tensor(longest) else int(np.max(longest, initial=0))
    options.require_memory(model, longest, inputs.shape[0] or 1)
    is_language_model = model.kind == LANGUAGE_MODEL
    if is_language_model:
        if prefix is not None:
            raise UserError("a language model continues its prompts: add the prefix to them.")
        prefix = forced_by(inputs)
    if limits is None:
        length = prompt_lengths(inputs) if is_language_model else shape_of(inputs)[1]
        limits = ops.cast(length + options.extra_length, "int32")
    one_sentence, kernels = False, None
    if ON_TENSORFLOW and not options.xla:
        few_rows = inputs.shape[0] == 1 and most <= FEW_ROWS
        one_sentence, kernels = kept_kernels(model, few_rows)
    request = SearchRequest(
        beam_size=beam_size,
        top_beams=top_beams,
        min_length=options.min_length,
        vocab_size=model.num_logits,
        limits=ops.broadcast_to(limits, shape_of(inputs)[:1]),
        prefix=prefix,
        logits_processors=processors,
        constraint=constraint,
        strategy=strategy,
        xla=options.xla,
        top_k=kept_top_k(model, options) if is_random else 0,
        kernels=kernels,
        one_sentence=one_sentence,
        **_numbers(options, alpha if beam_size else None, seed),
    )
    found = (in_a_graph if ON_TENSORFLOW else _by_backend)(model, inputs, request)
    if kernels is not None:
        found = without_gradient(found)
    if is_language_model:
        lengths = ops.maximum(found.lengths - prompt_lengths(inputs)[:, None], 0)
        ids, token_scores = (after_prompts(x, inputs) for x in (found.ids, found.token_scores))
        found = SearchResult(ids, lengths, found.scores, token_scores)
    return found


def _numbers(options: DecodeSettings, alpha, seed) -> dict[str, Any]:
    """Returns the numbers of a request; in TensorFlow, tensors: one graph is for all values."""
    numbers = {} if alpha is None else {"alpha": alpha if ON_TENSORFLOW else float(alpha)}
    if options.sampling_method == "random":
        numbers["seed"] = options.sampling_seed if seed is None else seed
        numbers["temperature"] = options.sampling_temp
        if options.sampling_keep_top_p != 1:
            numbers["top_p"] = options.sampling_keep_top_p
    if not ON_TENSORFLOW:
        return numbers
    types = {"seed": "int64"}
    return {k: ops.convert_to_tensor(v, types.get(k, "float32")) for k, v in numbers.items()}


def int_tensor(
    name: str, given, wanted: str, ranks: Sequence[int], rows: int | None = None, size: int = 0
):
    """Returns an int32 tensor; a `UserError` if it is not of one row or `rows`, or has ids not below `size`."""
    with explained(f"{name} must be {wanted}", Exception):
        given = ops.convert_to_tensor(given, ragged=False)
        numbers = ops.cast(given, "int32")
    unknown: Any = ()
    if size:
        with contextlib.suppress(Exception):  # of a symbolic tensor
            ids = np.asarray(given)
            unknown = ids[ids != ids.astype(int).clip(0, size - 1)]
    if len(unknown):
        raise UserError(f"{name} must be {wanted}, from 0 to {size - 1}, got {unknown[0]}.")
    shape = tuple(numbers.shape)
    if len(shape) not in ranks or (shape and rows and shape[0] not in (None, 1, rows)):
        raise UserError(f"{name} must be {wanted}, got shape {shape}.")
    return numbers


def kept_top_k(model: Model, options: DecodeSettings) -> int:
    """Returns how many likely tokens to sample from; 0 for all: with relative attention always, as in T2T."""
    kinds = {each.hp.self_attention_type for each in model.members}
    return max(0, options.sampling_keep_top_k) if kinds == {"dot_product"} else 0


def beam_search(model, inputs, *, top_beams: int | None = None, **options):
    """Decodes with beam search (section 6.1 of the paper; T2T's `beam_search`).

    A finished hypothesis of n tokens scores log p / ((5 + n) / 6)^alpha. The search of a sentence
    ends when no alive hypothesis can beat its best finished one (with top_beams > 1: its worst
    finished one), or at its maximum length. A sentence without a finished hypothesis returns its
    alive ones with their plain log p, as in T2T.

    Args:
        model, inputs, top_beams: see `search`.
        options: `max_lengths`, `prefix` and `logits_processors`, see `search`; and those of
            `DecodeSettings`: `beam_size` (K), `alpha`, `extra_length`, `min_length`, `xla`.

    Returns:
        ids [B, K', L] int32, best first, 0 after the first end; scores [B, K'] float32.

    Raises:
        UserError: `top_beams` or an option is out of range.
    """
    found = _search_with(options, {}, model, inputs, beams=True, top_beams=top_beams)
    return found.ids, found.scores


def greedy(model, inputs, **options):
    """Decodes by choosing the most likely token at every step: T2T's `_greedy_infer`.

    Args:
        model, inputs: see `search`.
        options: those of `beam_search` but `beam_size`; `alpha` has no effect.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32: the sum of
        the log-probabilities up to and including it.
    """
    found = _search_with(options, {"beam_size": 1}, model, inputs)
    return found.ids[:, 0], found.scores[:, 0]


def sample(model, inputs, *, seed=None, temperature=1.0, top_k: int = 0, top_p=1.0, **options):
    """Draws every token from the model's distribution (T2T's `sampling_method` "random").

    The same seed draws the same output for a sentence at the same position in the batch.

    Args:
        model, inputs: see `search`.
        seed: an int or a scalar int tensor; None draws one from Python's `random`.
        temperature: divides the logits (`sampling_temp`); below 1, likely tokens become likelier.
        top_k: sample from the k most likely tokens (`sampling_keep_top_k`); 0 means all. As in T2T, it
            has no effect on models with relative attention.
        top_p: sample from the most likely tokens that together reach this probability (nucleus
            sampling); 1 means all.
        options: those of `greedy`, but not `xla`.

    Returns:
        As `greedy`; the scores are log-probabilities without temperature, top_k and top_p.

    Raises:
        UserError: an option is out of range.
    """
    own = {"beam_size": 1, "sampling_method": "random", "sampling_temp": temperature}
    own |= {"sampling_keep_top_k": top_k, "sampling_keep_top_p": top_p, "sampling_seed": 0}
    seed = random.randrange(2**31) if seed is None else seed
    found = _search_with(options, own, model, inputs, seed=seed)
    return found.ids[:, 0], found.scores[:, 0]


def _search_with(options: dict[str, Any], own: dict[str, Any], model, inputs, **given):
    """Searches with a caller's options, of `search` or of `DecodeSettings`, and a function's own of these."""
    of_search = ("max_lengths", "prefix", "logits_processors")
    given |= {name: options.pop(name) for name in of_search if name in options}
    allowed = {"beam_size", "alpha", "extra_length", "min_length", "xla"} - own.keys()
    for name in options.keys() - allowed:
        near = nearest(name, sorted(allowed.union(of_search)))
        raise UserError(f"this search takes no option {name!r}.{near}")
    return search(model, inputs, DecodeSettings(**own, **options), **given)


class SearchRequest(NamedTuple):
    """A search for a graph: what the graph is made for, and what may change between its calls."""

    beam_size: int  # K; 0: one hypothesis per sentence, greedy or sampled
    top_beams: int
    min_length: int
    vocab_size: int
    limits: Any  # [B] int32, the maximum lengths of the outputs
    prefix: Any  # [B, P] int32, or None
    logits_processors: tuple[LogitsProcessor, ...]
    constraint: Any  # see `logits.Constraint`; or None
    strategy: Any  # see `search`; or None
    xla: bool
    alpha: Any = None  # this and the next are numbers or scalar tensors; None without beams
    seed: Any = None  # None: not sampled
    temperature: Any = None
    top_k: int = 0
    top_p: Any = None
    kernels: Any = None  # see `kept_kernels`
    one_sentence: bool = False  # at every call of the graph

    def made_strategy(self, choose=most_likely, append=grown):
        """Returns the strategy, which appends to tensors by `append`; `choose` is that of `OnePath`."""
        if self.strategy:
            return self.strategy(self)
        if not self.beam_size:
            return OnePath(self.min_length, choose, append)
        return BeamSearch(
            self.beam_size, self.top_beams, self.alpha, self.min_length, self.vocab_size, append
        )


def _by_backend(model, inputs, request: SearchRequest) -> SearchResult:
    """Searches on JAX or PyTorch; what was compiled for the same options is used again."""
    searches = cache_of(model, "_searches")
    choose: Any = most_likely
    if (seed := request.seed) is not None:
        choose = Draw(request.temperature, request.top_k, request.top_p)
        # On PyTorch, steps are added to it.
        seed = np.random.default_rng(int(seed) % 2**64).integers(2**31)
    strategy = request.made_strategy(choose, written)
    if strategy not in searches:
        searches[strategy] = StaticSearch(model, strategy)
    return searches[strategy].run(inputs, request.limits, request.prefix, seed)


def named_processors(text: str) -> tuple[LogitsProcessor, ...]:
    """Creates the processors that the decode hparam `logits_processors` names.

    The text is "NAME:VALUE", several as "[NAME:VALUE,NAME:VALUE]", or "" for none; ":VALUE" may be
    left out if the registered function has a default. An unknown name, a value that is not a
    number, or a missing value is a `UserError`.
    """
    items = text.strip().removeprefix("[").removesuffix("]").split(",")
    return tuple(_named_processor(item.strip()) for item in items if item.strip())


def _named_processor(item: str) -> LogitsProcessor:
    name, colon, value = item.partition(":")
    make = registry.logits_processor(name)
    what = f"logits processor {item!r} cannot be created"
    with explained(what, TypeError, ValueError, remedy=f"write {name}:NUMBER"):
        if colon and not math.isfinite(float(value)):
            raise ValueError(f"{value} is not finite")
        return _made(make, *([float(value)] if colon else []))


@functools.cache  # the same function for the same words, since a new one needs a new graph
def _made(make, *value):
    return make(*value)
