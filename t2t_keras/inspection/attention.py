"""What every head of a trained model attends to in a text and its translation."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, writing
from t2t_keras.ids import EOS_ID
from t2t_keras.inspection.tokens import Tokens, shown_tokens

if TYPE_CHECKING:
    from t2t_keras.data.problem import Problem
    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.inspection.search import SearchTrace

KINDS = ("encoder", "decoder", "encdec")
"""Self-attention of the encoder, that of the decoder, and the decoder's to the encoder."""

MOST_TOKENS = 256
"""Of a side: the weights of 6 layers with 8 heads are 3 million numbers a kind then."""

SETTINGS = ("beam_size", "alpha", "extra_length", "min_length")
"""The decode hparams that count here."""


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionData:
    """The attention weights of a text of S tokens and its translation of T, L layers of H heads.

    A position of the decoder has the name of the token that it writes; what it has read is the
    token before, and the first one nothing. Each row of weights sums to 1.
    """

    title: str
    source: Tokens
    target: Tokens
    encoder: np.ndarray
    """[L, H, S, S] float32, queries before keys."""

    decoder: np.ndarray
    """[L, H, T, T] float32, 0 where a key comes after its query."""

    encdec: np.ndarray
    """[L, H, T, S] float32."""

    tree: str | None = None
    """Of parsing: the tree in brackets, on one line."""

    search: SearchTrace | None = None
    """How the translation was found, if by beam search."""

    def weights(self, kind: str) -> np.ndarray:
        """Returns the weights of one of `KINDS`."""
        return {"encoder": self.encoder, "decoder": self.decoder, "encdec": self.encdec}[kind]

    def sides(self, kind: str) -> tuple[Tokens, Tokens]:
        """Returns the tokens of the queries and of the keys of one of `KINDS`."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target, self.target),
            "encdec": (self.target, self.source),
        }[kind]

    def by_words(self) -> AttentionData:
        """The same for whole words: the sum over the tokens of a key, the mean over a query's."""
        encoder, decoder, encdec = (
            _by_words(self.weights(kind), *self.sides(kind)) for kind in KINDS
        )
        return dataclasses.replace(
            self,
            source=self.source.by_words(),
            target=self.target.by_words(),
            encoder=encoder,
            decoder=decoder,
            encdec=encdec,
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as lists, strings and numbers, weights rounded to 4 digits.

        What `attention_page` makes a page of.
        """
        weights = {kind: self.weights(kind).astype(float).round(4).tolist() for kind in KINDS}
        return {
            "title": self.title,
            "source": self.source._asdict(),
            "target": self.target._asdict(),
            "attention": weights,
            "tree": self.tree,
            "search": self.search.to_json() if self.search else None,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `.npz` file, which `numpy.load` reads.

        "encoder", "decoder" and "encdec" are the weights; "source_tokens", "source_words",
        "source_word_texts", "source_text" and the same of "target" are the tokens; "title", "tree" ("" if there
        is none) and "search" (JSON, "null" if there is none) are strings.

        Raises:
            UserError: the file cannot be written.
        """
        arrays: dict[str, Any] = {kind: self.weights(kind) for kind in KINDS}
        for side, tokens in (("source", self.source), ("target", self.target)):
            arrays |= {f"{side}_{name}": values for name, values in tokens._asdict().items()}
        arrays["title"], arrays["tree"] = self.title, self.tree or ""
        arrays["search"] = json.dumps(self.search.to_json() if self.search else None)
        with writing(path), atomic_write(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)


def attention_data(
    model,
    encoders,
    text: str,
    target_text: str | None = None,
    *,
    problem: Problem | None = None,
    settings: DecodeSettings | None = None,
    title: str = "",
) -> AttentionData:
    """Reads what a model attends to in a text and its translation.

    Args:
        model: a `Transformer`.
        encoders: "inputs" and "targets" text encoders, as `Problem.get_feature_encoders` gives.
        text: the source.
        target_text: the translation; of parsing, a tree in brackets or its tags as `linearize`
            writes them. None: what the model finds, by beam search unless `beam_size` is 1.
        problem: which the model was trained on; that of parsing makes trees of what comes out.
        settings: how to decode, of which `SETTINGS` count.
        title: what to call it.

    Raises:
        UserError: the model is an ensemble; a text has more than `MOST_TOKENS` tokens, or the
            vocabulary cannot express it; a setting that does not count is changed.
    """
    from t2t_keras.data.parsing_problem import ParsingProblem
    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.inspection.search import decode
    from t2t_keras.transformer import Transformer

    if not isinstance(model, Transformer):
        raise UserError("several models have no attention in common: name one checkpoint.")
    settings = settings or DecodeSettings()
    _refuse_what_does_not_count(settings)
    # Reversed, a problem of parsing writes words.
    parsing = None
    if isinstance(problem, ParsingProblem) and problem.quality_metric == "f1":
        parsing = problem
    source_ids = _encoded(encoders["inputs"], text, "text")
    search = None
    if target_text is None:
        target_ids, search = decode(model, encoders["targets"], source_ids, settings)
    else:
        if parsing:
            target_text = _tags(parsing, text, target_text)
        target_ids = _encoded(encoders["targets"], target_text, "target text")
    target = shown_tokens(encoders["targets"], target_ids, split_at_space=bool(parsing))
    return AttentionData(
        title=title,
        source=shown_tokens(encoders["inputs"], source_ids),
        target=target,
        **attention_weights(model, source_ids, target_ids),
        tree=parsing.format_output(text, target.text) if parsing else None,
        search=search,
    )


def attention_weights(
    model, source_ids: Sequence[int], target_ids: Sequence[int]
) -> dict[str, np.ndarray]:
    """The weights of one pair of sentences, by `KINDS`; see `AttentionData`.

    Args:
        model: a `Transformer`.
        source_ids: S ids with their end of sentence.
        target_ids: T ids with theirs.
    """
    batch = {
        "inputs": np.array([source_ids], np.int32),
        "targets": np.array([target_ids], np.int32),
    }
    _, weights = model(batch, training=False, return_attention_weights=True)
    stacked = {
        kind: np.stack([np.asarray(layer)[0] for layer in layers])
        for kind, layers in weights.items()
    }
    for kind, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        if stack.restricted:
            attention = stack.layers[0].self_attention
            r = attention.neighborhood
            stacked[kind] = _among_all(stacked[kind], r - 1 if attention.causal else r // 2)
    return stacked


def _among_all(near: np.ndarray, before: int) -> np.ndarray:
    """Weights [L, H, n, r] of the neighbours of each position, as [L, H, n, n].

    Args:
        before: how many of the r come before the position itself.
    """
    layers, heads, length, r = near.shape
    weights = np.zeros((layers, heads, length, length), near.dtype)
    for query in range(length):
        keys = range(max(0, query - before), min(length, query - before + r))
        places = [key - query + before for key in keys]
        weights[:, :, query, list(keys)] = near[:, :, query, places]
    return weights


def _by_words(weights: np.ndarray, queries: Tokens, keys: Tokens) -> np.ndarray:
    """Weights [L, H, query, key] of tokens as those of words."""
    of_queries, of_keys = (
        np.eye(len(side.word_texts), dtype=np.float32)[side.words] for side in (queries, keys)
    )  # [token, word]
    return (of_queries / of_queries.sum(0)).T @ weights @ of_keys


def _refuse_what_does_not_count(settings: DecodeSettings) -> None:
    for field in dataclasses.fields(settings):
        if field.name not in SETTINGS and getattr(settings, field.name) != field.default:
            raise UserError(
                f"decode hparam {field.name} has no effect on attention: leave it out. "
                f"Those that have are {', '.join(SETTINGS)}."
            )


def _encoded(encoder, text: str, name: str) -> list[int]:
    """The ids of a text with the end of sentence."""
    try:
        ids = [*encoder.encode(text.strip()), EOS_ID]
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if len(ids) > MOST_TOKENS:
        raise UserError(
            f"the {name} has {len(ids)} tokens, end of sentence included; attention is shown of "
            f"{MOST_TOKENS} at most: give a shorter one."
        )
    return ids


def _tags(problem, words: str, target: str) -> str:
    """The tags of a tree in brackets, or the tags themselves."""
    from t2t_keras.parsing import linearize
    from t2t_keras.parsing.trees import parse_tree

    if not target.lstrip().startswith("("):
        return target
    tree = problem.prepare(parse_tree(target))
    of_tree, tags = linearize(tree) if tree else ("", "")
    if of_tree.split() != words.split():
        raise UserError(
            f"the tree's words are {of_tree!r} and those of the text {words.strip()!r}: "
            "they must be the same."
        )
    return tags
