"""The signatures of a SavedModel: text to text, ids to ids, scores of pairs, and T2T's signature."""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from t2t_keras.decoding import DecodeSettings, SearchResult, search
from t2t_keras.decoding.constraints import Phrases
from t2t_keras.decoding.searches import named_processors
from t2t_keras.decoding.translator import probabilities, token_scores
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.inspection import alignment
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL, TRANSLATION
from t2t_keras.precision import in_8_bits, weights_read
from t2t_keras.settings import INT32
from t2t_keras.text import ClassLabelEncoder, TokenTextEncoder
from t2t_keras.text.encoders import require_tensors, require_vocabulary
from t2t_keras.text.graph import SPACES, require_none, valid

SIGNATURES = ("translate", "translate_with_options", "translate_ids", "score", "serialized_example")
"""The signatures of every translation SavedModel; one of them is also `serving_default`."""

ALIGN = "align"
"""The signature of a translation SavedModel exported with `align_heads`."""

WITH_PHRASES = "translate_with_phrases"
"""The signature of a translation SavedModel exported with `phrases`."""

_TEXTS = tf.TensorSpec([None], tf.string)
_ROWS = tf.RaggedTensorSpec([None, None], tf.int32, row_splits_dtype=tf.int64)
_EDGES = f"^[{SPACES}]+|[{SPACES}]+$"  # what `str.strip` removes
_REAL = tf.TensorSpec([], tf.float32)
_WHOLE = tf.TensorSpec([], tf.int32)

_INPUTS = {
    "translate": [_TEXTS],
    "translate_with_options": [_TEXTS, _REAL, _WHOLE],
    "translate_ids": [tf.TensorSpec([None, None], tf.int32)],
    "score": [_TEXTS, _TEXTS],
    "serialized_example": [tf.TensorSpec([None], tf.string, name="input")],
    ALIGN: [_TEXTS, _TEXTS],
    WITH_PHRASES: [_TEXTS, _TEXTS],
    "complete": [_TEXTS],
    "complete_with_options": [_TEXTS, _REAL, _WHOLE],
    "score_texts": [_TEXTS],
    "classify": [_TEXTS],
}
"""What the methods of `_Parts` take that are signatures."""


class _Served(tf.Module):
    """A model with its encoders, as tensor functions that can be saved.

    Every function takes a request of any number of rows, B, and decodes as many at once as `batch_size`
    and `batch_tokens` allow. The result of a row does not depend on the others: its output has at most
    `extra_length` tokens more than its own input, including end of sentence.

    White space at both ends of a text (not of a prompt) and bytes that are not UTF-8 are removed. Only
    the first `max_input_size` tokens are read; `truncated`, [B] bool, is True if there were more.

    Args:
        model: the `Transformer`, or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders, or only "targets".
        settings: the decode settings. N, the number of hypotheses returned, is `beam_size` with
            `return_beams`, else 1.
        align_heads: adds the signature `align`, word alignments by these heads (see `Heads.parse`).
        phrases: adds the signature `translate_with_phrases`.

    Raises:
        UserError: a setting is not supported in an export, a vocabulary has more tokens than the model,
            or the model cannot align.
    """

    names: tuple[str, ...]
    """The signatures; by default the first is `serving_default`."""

    def __init__(
        self,
        model,
        encoders,
        settings: DecodeSettings | None = None,
        align_heads: str = "",
        phrases: bool = False,
    ):
        super().__init__(name="transformer")
        settings = settings or DecodeSettings()
        refused = {"sampling_method": "random", "long_inputs": "skip", "t2t_batches": True}
        for name, value in {**refused, "constrained": "always"}.items():
            if getattr(settings, name) == value:
                raise UserError(
                    f"decode hparam {name} cannot be {value} in an export: leave it out, or use "
                    "t2t-keras-decode."
                )
        require_vocabulary(model, {side: e.vocab_size for side, e in encoders.items()})
        require_tensors(encoders.values(), "an export")
        # Attributes are saved. They reference the tables and variables that the functions use, but not the
        # Keras model, which would be traced with inputs of Keras's choice.
        self._graphs = [e.graph for e in encoders.values() if not isinstance(e, ClassLabelEncoder)]
        if phrases and model.kind != TRANSLATION:
            raise UserError(f"constraints are for translation, got {model.kind}: leave them out.")
        heads = alignment.heads_of_model(model, align_heads) if align_heads else None
        self._parts = _Parts(model, encoders, settings, heads)
        self.names = (*self.names, *[ALIGN] * bool(heads), *[WITH_PHRASES] * phrases)
        for name in self.names:
            method = "score_texts" if name == "score" and "inputs" not in encoders else name
            function = getattr(self._parts, method)
            graph = tf.function(function, input_signature=_INPUTS[method], autograph=False)
            setattr(self, name, graph)
        self._weights = self._parts.weights()

    def signatures(self) -> dict:
        """Returns the functions by their names in a SavedModel."""
        functions = {name: getattr(self, name) for name in self.names}
        if in_8_bits(self._parts.model):  # which weights are not needed is known from its graphs
            for function in functions.values():  # others are made by `save`, which makes all again
                function.get_concrete_function()
            self._weights = self._parts.weights()
        return functions


class ServedTransformer(_Served):
    """A translation model, with functions of tensors; the arguments are those of `_Served`.

    - `translate`: texts [B] -> `translation` [B], `translations` [B, N], `scores` [B, N], `lengths` [B, N]
      in tokens, `token_scores` [B, N, L], log p of each, `truncated` [B].
    - `translate_with_options`: the same, with scalars `alpha` and `extra_length` of the request.
    - `translate_with_phrases`: the same, with phrases that must appear in each, separated by tabs.
    - `translate_ids`: ids [B, S] with end of sentence, then 0 -> `target_ids` [B, N, L], 0 after their end
      of sentence, and `scores`, `lengths`, `token_scores`, `truncated`.
    - `score`: pairs of texts -> `log_probability` [B] of the targets, their `tokens` [B] and
      `token_scores` [B, T], all with the end of sentence, `truncated`.
    - `align`: pairs of texts -> `alignment` [B], lines such as "0-0 1-2", `truncated`.
    - `serialized_example`, T2T's: `tf.train.Example`s with `inputs` ids [B] -> `outputs` [B, L] int32 and
      `scores` [B], or [B, N, L] and [B, N]; `batch_prediction_key` [B, 1] int32 is copied, 0 if it has none.
    """

    names = SIGNATURES


class ServedLanguageModel(_Served):
    """A language model; the arguments are those of `_Served`. Only the end of a long prompt is read.

    - `complete`: prompts [B] -> `completion` [B], `completions` [B, N], the rest as of `translate`.
    - `complete_with_options`: the same, with scalars `alpha` and `extra_length` of the request.
    - `score`: texts [B] -> as of a `ServedTransformer`.
    """

    names = ("complete", "complete_with_options", "score")


class ServedClassifier(_Served):
    """A text classifier; the arguments are those of `_Served`.

    - `classify`: texts [B] -> `label` [B]; `labels` and `probabilities` [B, C], best first; `truncated`.
    """

    names = ("classify",)


def served_class(model) -> type[_Served]:
    """Returns the `_Served` subclass for a model."""
    return {
        TRANSLATION: ServedTransformer,
        LANGUAGE_MODEL: ServedLanguageModel,
        CLASSIFICATION: ServedClassifier,
    }[model.kind]


class _Parts:
    """The code that the signatures share; not a `tf.Module`, so that its attributes are not saved."""

    def __init__(self, model, encoders, settings: DecodeSettings, heads):
        self.model, self.encoders = model, encoders
        self.settings, self.heads = settings, heads
        named_processors(settings.logits_processors)  # checks their names
        self.hypotheses = settings.beam_size if settings.return_beams else 1
        self.limit = settings.max_input_size if settings.max_input_size > 0 else tf.int32.max
        self.rows = settings.batch_size or tf.int32.max
        self.tokens = (settings.batch_tokens or tf.int32.max) // settings.beam_size
        # A single function, so that the SavedModel contains the search only once.
        signature = [_ROWS, _REAL, _WHOLE]
        self.search = tf.function(self._search, input_signature=signature, autograph=False)

    def weights(self) -> list:
        """Returns the variables that the functions use."""
        return [weight.value for each in self.model.members for weight in weights_read(each)]

    def translate(self, text):
        return self.translate_with_options(text, self.settings.alpha, self.settings.extra_length)

    def translate_with_options(self, text, alpha, extra_length):
        rows, truncated = self.encode("inputs", text)
        return self.decode("translation", rows, truncated, alpha, extra_length)

    def complete(self, text):
        return self.complete_with_options(text, self.settings.alpha, self.settings.extra_length)

    def complete_with_options(self, text, alpha, extra_length):
        # A space after final punctuation, as `Translator` adds it.
        text = tf.strings.regex_replace(valid(text), "([[:punct:]])$", r"\1 ")
        rows = self.encoders["targets"].encode_tensor(text)
        truncated = rows.row_lengths() > self.limit
        return self.decode("completion", rows[:, -self.limit :], truncated, alpha, extra_length)

    def decode(self, name, rows, truncated, alpha, extra_length) -> dict:
        """Decodes rows of ids; see `written`."""
        most = max(min(self.limit, 2**30), self.settings.extra_length)  # int32 holds the sum
        wrong_alpha = ["alpha must be a number, got", alpha]
        wrong_length = [f"extra_length must be from 0 to {most}, got", extra_length]
        is_number = tf.debugging.Assert(tf.math.is_finite(alpha), wrong_alpha)
        fits = tf.debugging.Assert((extra_length >= 0) & (extra_length <= most), wrong_length)
        with tf.control_dependencies([is_number, fits]):
            rows = tf.identity(rows)
        return self.written(name, self.search(rows, alpha, extra_length), truncated)

    def written(self, name: str, result, truncated) -> dict:
        """Returns the best text of each row, all of its texts, and what `found` returns."""
        texts = self.texts(result[0])
        return {name: texts[:, 0], f"{name}s": texts, **found(SearchResult(*result), truncated)}

    def translate_with_phrases(self, text, phrases):
        rows, truncated = self.encode("inputs", as_many("texts and phrases", text, phrases))
        split = tf.strings.split(valid(phrases), "\t")
        split = split.with_flat_values(tf.strings.regex_replace(split.flat_values, _EDGES, ""))
        split = tf.ragged.boolean_mask(split, tf.strings.length(split) > 0)
        ids = split.with_flat_values(self.encoders["targets"].encode_tensor(split.flat_values))
        ids = tf.pad(ids.to_tensor(), [[0, 0], [0, 1], [0, 1]])  # one phrase of one place at least
        result = self._search(rows, self.settings.alpha, self.settings.extra_length, ids)
        return self.written("translation", result, truncated)

    def classify(self, text):
        rows, truncated = self.encode("inputs", text)
        lengths = tf.cast(rows.row_lengths(), tf.int32)
        names = self.encoders["targets"].class_labels

        def run(numbers):
            return [probabilities(self.model, tf.gather(rows, numbers).to_tensor(), len(names))]

        empty = [tf.zeros([0, len(names)])]
        (rows_p,) = in_batches(run, lengths, empty, most_rows=self.rows, most_tokens=self.tokens)
        p, classes = tf.math.top_k(rows_p, len(names))
        labels = tf.gather(tf.constant(names), classes)
        return {"label": labels[:, 0], "labels": labels, "probabilities": p, "truncated": truncated}

    def translate_ids(self, source_ids):
        result, truncated = self.translate_rows(_without_padding(source_ids))
        return {"target_ids": result.ids, **found(result, truncated)}

    def serialized_example(self, examples):
        """An example without ids is an error: the parser reads bytes of other messages as one."""
        features = tf.io.parse_example(
            examples,
            {
                "inputs": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
                "batch_prediction_key": tf.io.FixedLenFeature([1], tf.int64, [0]),
            },
        )
        rows, key = features["inputs"], features["batch_prediction_key"]
        absent = "An Example has no int64 list inputs; its number:"
        wide = "batch_prediction_key needs more than 32 bits:"
        have_ids = require_none(rows.row_lengths() == 0, absent)
        fits = require_none((key > INT32) | (key < -INT32), wide, key)
        with tf.control_dependencies([have_ids, fits]):
            rows, key = tf.identity(rows), tf.cast(key, tf.int32)
        result, _ = self.translate_rows(rows)
        ids, scores = result.ids, result.scores
        if self.hypotheses == 1:
            ids, scores = ids[:, 0], scores[:, 0]
        return {"outputs": ids, "scores": scores, "batch_prediction_key": key}

    def translate_rows(self, rows):
        """Rows of ids [B, None] -> `SearchResult` of N hypotheses, truncated [B].

        A row without ids is an empty sentence. Ids are checked before they are cast to int32.
        """
        is_empty = rows.row_lengths() == 0
        ends = tf.fill(tf.shape(tf.boolean_mask(is_empty, is_empty)), EOS_ID)
        ends = tf.RaggedTensor.from_row_lengths(ends, tf.cast(is_empty, tf.int64))
        ids, size = rows.flat_values, self.model.source_vocab_size
        message = f"Source id out of range; 0 to {size - 1} are allowed:"
        known = require_none((ids < 0) | (ids >= size), message, ids)
        with tf.control_dependencies([known]):
            rows = tf.concat([tf.cast(rows, tf.int32), ends], 1)
            rows, truncated = cut(rows, self.limit)
        result = self.search(rows, self.settings.alpha, self.settings.extra_length)
        return SearchResult(*result), truncated

    def encode(self, side, text):
        """Texts [B] -> ids [B, None] with end of sentence, and which rows were cut, [B]."""
        text = tf.strings.regex_replace(valid(text), _EDGES, "")
        ids = self.encoders[side].encode_tensor(text)
        return cut(tf.concat([ids, tf.fill([tf.size(text), 1], EOS_ID)], 1), self.limit)

    def texts(self, ids):
        """Ids [B, N, L] -> texts [B, N], up to the end of sentence or the trailing padding.

        Ids that `vocab_divisor` added to a subword vocabulary have no text.
        """
        encoder = self.encoders["targets"]
        batch, hypotheses, length = tf.unstack(tf.shape(ids))
        ids = tf.reshape(ids, [batch * hypotheses, length])
        ended = tf.cumsum(tf.cast(ids == EOS_ID, ids.dtype), axis=-1, exclusive=True)
        rows = _without_padding(tf.where(ended > 0, PAD_ID, ids))
        rows = tf.ragged.boolean_mask(rows, rows != EOS_ID)
        if not isinstance(encoder, TokenTextEncoder):  # see `spelled`
            rows = tf.ragged.boolean_mask(rows, rows < encoder.vocab_size)
        return tf.reshape(encoder.decode_tensor(rows), [batch, self.hypotheses])

    def _search(self, sources, alpha, extra_length, phrases=None):
        """Rows of ids [B, None] -> the tensors of a `SearchResult`."""
        lengths = tf.cast(sources.row_lengths(), tf.int32)

        def run(rows):
            ids = tf.gather(sources, rows).to_tensor()
            limits = tf.gather(lengths, rows) + extra_length
            strategy = None if phrases is None else Phrases(tf.gather(phrases, rows))
            return search(
                self.model, ids, self.settings, max_lengths=limits, alpha=alpha, strategy=strategy
            )

        n = self.hypotheses
        empty = SearchResult(
            ids=tf.zeros([0, n, 0], tf.int32),
            lengths=tf.zeros([0, n], tf.int32),
            scores=tf.zeros([0, n]),
            token_scores=tf.zeros([0, n, 0]),
        )
        found = in_batches(run, lengths, empty, most_rows=self.rows, most_tokens=self.tokens)
        if self.model.kind != TRANSLATION:
            return found
        is_text = tf.reduce_any(sources != EOS_ID, 1)  # as in `Translator`
        if phrases is not None:
            is_text |= tf.reduce_any(phrases != PAD_ID, (1, 2))
        kept = {2: is_text[:, None], 3: is_text[:, None, None]}
        return [tf.where(kept[each.shape.rank], each, tf.zeros_like(each)) for each in found]

    def score(self, source, target):
        sides, truncated = self.encode_pairs(source, target)
        return self.scores(partial(token_scores, self.model), sides, truncated)

    def score_texts(self, text):
        targets, truncated = self.encode("targets", text)
        return self.scores(partial(token_scores, self.model, None), [targets], truncated)

    def scores(self, run, sides, truncated) -> dict:
        log_p = self.batches_of_pairs(run, sides, tf.zeros([0, 0]))
        return {
            "log_probability": tf.reduce_sum(log_p, 1),
            "tokens": tf.reduce_sum(tf.cast(sides[-1] != PAD_ID, tf.int32), 1),
            "token_scores": log_p,
            "truncated": truncated,
        }

    def align(self, source, target):
        """Lines as `to_pharaoh` writes them."""
        if spaces := alignment.unknown_spaces(self.encoders):
            source, target = (
                tf.strings.regex_replace(side, f"[\t{spaces}]", " ") for side in (source, target)
            )
        sides, truncated = self.encode_pairs(source, target)

        def run(*ids):
            words = alignment.source_words(self.model, self.encoders, [self.heads], *ids)
            return alignment.to_pharaoh_tensor(words[..., 0])

        aligned = self.batches_of_pairs(run, sides, tf.zeros([0], tf.string))
        return {"alignment": aligned, "truncated": truncated}

    def encode_pairs(self, source, target):
        """Texts [B] and [B] -> ids of both [B, None] with end of sentence, and which pairs were cut, [B]."""
        sources, source_cut = self.encode("inputs", as_many("sources and targets", source, target))
        targets, target_cut = self.encode("targets", target)
        return [sources, targets], source_cut | target_cut

    def batches_of_pairs(self, run, sides, empty):
        """Calls `run` with batches of the ids of all sides, [b, S] and [b, T]; its results have shape [b, ...]."""
        (results,) = in_batches(
            lambda rows: [run(*(tf.gather(ids, rows).to_tensor() for ids in sides))],
            tf.cast(tf.reduce_max([ids.row_lengths() for ids in sides], 0), tf.int32),
            [empty],
            most_rows=self.rows,
            most_tokens=min(self.tokens, 2048),  # each has V logits
        )
        return results


def found(result: SearchResult, truncated) -> dict:
    """Returns `scores` [B, N], `lengths` [B, N], `token_scores` [B, N, L] and `truncated` [B]."""
    names = ("scores", "lengths", "token_scores")
    return {name: getattr(result, name) for name in names} | {"truncated": truncated}


def _without_padding(ids):
    """Ids [B, L] -> rows [B, None] without trailing padding."""
    ids = tf.pad(ids, [[0, 0], [0, 1]])  # one column at least
    place = tf.range(1, tf.shape(ids, tf.int64)[1] + 1)
    return tf.RaggedTensor.from_tensor(ids, tf.reduce_max(tf.where(ids != PAD_ID, place, 0), 1))


def as_many(what: str, texts, others):
    """Returns texts [B] with a check that the others are as many."""
    number, other = tf.size(texts), tf.size(others)
    same = tf.debugging.Assert(number == other, [f"The numbers of {what} differ:", number, other])
    with tf.control_dependencies([same]):
        return tf.identity(texts)


def cut(rows, limit: int):
    """Cuts rows of ids [B, None] to `limit` ids with an end of sentence; returns which were cut, too."""
    truncated = rows.row_lengths() > limit
    rows = rows[:, :limit]
    last = tf.boolean_mask(rows.row_splits[1:] - 1, truncated)
    ends = tf.fill(tf.shape(last), EOS_ID)
    flat = tf.tensor_scatter_nd_update(rows.flat_values, last[:, None], ends)
    return rows.with_flat_values(flat), truncated


def in_batches(
    run: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    lengths: tf.Tensor,
    empty: Sequence[tf.Tensor],
    *,
    most_rows: int,
    most_tokens: int,
) -> list[tf.Tensor]:
    """Runs a function on a request of any size, in batches of rows of similar length.

    Args:
        run: takes the indices of b rows, [b] int32, and returns tensors [b, ...].
        lengths: [B] int32, the number of tokens of each row; B may be 0.
        empty: the results of `run` for zero rows; an axis of size 0 means any size.
        most_rows, most_tokens: limits of a batch, with padding; a longer row is run by itself.

    Returns:
        The results of all rows in the original order, [B, ...], padded with 0 if batches differ in size.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    descending = tf.gather(lengths, order)
    shapes = [tf.TensorShape([size or None for size in tensor.shape]) for tensor in empty]

    def step(begin, done):
        rows = tf.clip_by_value(most_tokens // tf.maximum(descending[begin], 1), 1, most_rows)
        rows = tf.minimum(rows, tf.size(order) - begin)
        stacked = []
        for pair in zip(done, run(order[begin : begin + rows]), strict=True):
            size = tf.maximum(*(tf.shape(tensor)[1:] for tensor in pair))
            missing = [(size - tf.shape(tensor)[1:])[:, None] for tensor in pair]
            # No further rows; at the end of the other axes.
            padding = [tf.pad(one, [[1, 0], [1, 0]]) for one in missing]
            stacked.append(tf.concat(list(map(tf.pad, pair, padding)), 0))
        return begin + rows, list(map(tf.ensure_shape, stacked, shapes))

    _, done = tf.while_loop(
        lambda begin, done: begin < tf.size(order),
        step,
        (tf.constant(0), list(empty)),
        shape_invariants=(tf.TensorShape([]), shapes),
        parallel_iterations=1,
    )
    place = tf.math.invert_permutation(order)
    return [tf.gather(tensor, place) for tensor in done]
