"""The attention weights of all layers and heads for a text and its translation."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_keras.data.parsing_problem import ParsingProblem
from t2t_keras.data.problem import Problem
from t2t_keras.decoding import DecodeSettings, search
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, writing
from t2t_keras.ids import EOS_ID, until_eos
from t2t_keras.inspection.tokens import Tokens, shown_tokens
from t2t_keras.parsing import linearize, parse_tree

KINDS = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "encdec": ("target", "source"),
}
"""The sides of queries and keys of self-attention in encoder and decoder, and of the attention between them."""

MOST_TOKENS = 256
"""Maximal tokens per side; 6 layers of 8 heads then have 3 million weights per kind."""

SETTINGS = ("beam_size", "alpha", "extra_length", "min_length", "logits_processors", "constrained")
"""The decode hparams that have an effect here."""


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionData:
    """Attention weights of L layers of H heads for a source of S tokens and a target of T.

    A decoder position is labelled with the token that it predicts; its input is the previous token
    (none for the first). The weights are float32, [query, key]. Each row of them sums to 1.
    """

    title: str
    source: Tokens
    target: Tokens
    encoder: np.ndarray  # [L, H, S, S]
    decoder: np.ndarray  # [L, H, T, T], 0 for keys after their query
    encdec: np.ndarray  # [L, H, T, S]
    tree: str | None = None  # for a parsing problem: the parse tree in brackets, on one line

    def weights(self, kind: str) -> np.ndarray:
        """Returns the weights of one of `KINDS`."""
        return getattr(self, kind)

    def sides(self, kind: str) -> tuple[Tokens, Tokens]:
        """Returns the query tokens and the key tokens of one of `KINDS`."""
        queries, keys = KINDS[kind]
        return getattr(self, queries), getattr(self, keys)

    def by_words(self) -> "AttentionData":
        """Returns weights between words: summed over a key word's tokens, averaged over a query word's."""
        weights: dict[str, Any] = {}
        for kind in KINDS:
            queries, keys = (
                np.eye(len(side.word_texts), dtype=np.float32)[side.words]
                for side in self.sides(kind)
            )  # [token, word]
            weights[kind] = (queries / queries.sum(0)).T @ self.weights(kind) @ keys
        source, target = self.source.by_words(), self.target.by_words()
        return dataclasses.replace(self, source=source, target=target, **weights)

    def to_json(self) -> dict[str, Any]:
        """Returns the argument of `attention_page`: lists, strings and numbers rounded to 4 digits."""
        weights = {kind: self.weights(kind).astype(float).round(4).tolist() for kind in KINDS}
        return {
            "title": self.title,
            "source": self.source._asdict(),
            "target": self.target._asdict(),
            "attention": weights,
            "tree": self.tree,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a `.npz` file for `numpy.load`; raises UserError if it cannot be written.

        It contains the weights "encoder", "decoder" and "encdec"; "source_tokens", "source_words",
        "source_word_texts", "source_text" and the same for "target"; the strings "title" and "tree".
        """
        arrays: dict[str, Any] = {kind: self.weights(kind) for kind in KINDS}
        for side, tokens in (("source", self.source), ("target", self.target)):
            arrays |= {f"{side}_{name}": values for name, values in tokens._asdict().items()}
        arrays["title"], arrays["tree"] = self.title, self.tree or ""
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
    """Returns the attention weights for a text and its translation.

    Args:
        model, encoders: a `Transformer`, and its "inputs" and "targets" text encoders.
        text: the source text.
        target_text: the translation; for parsing, a tree in brackets or the tags in the form of
            `linearize`. None: decoded by the model, with beam search unless `beam_size` is 1.
        problem: the model's problem; a parsing problem turns the output into a tree.
        settings: decode settings, of which `SETTINGS` have an effect.
        title: the title of the page or figure.

    Raises:
        UserError: the model is an ensemble, a text has more than `MOST_TOKENS` tokens or cannot be
            encoded, or a setting without effect is changed.
    """
    require_both_sides(model, "a picture of attention", "encoder", "decoder")
    settings = settings or DecodeSettings()
    for field in dataclasses.fields(settings):
        if field.name not in SETTINGS and getattr(settings, field.name) != field.default:
            raise UserError(
                f"decode hparam {field.name} has no effect on attention: leave it out. "
                f"Those with an effect are {', '.join(SETTINGS)}."
            )
    # A reversed parsing problem outputs words.
    is_parsing = isinstance(problem, ParsingProblem) and problem.quality_metric == "f1"
    parsing = problem if is_parsing else None
    source_ids = _encoded(encoders["inputs"], text, "text")
    if target_text is None:
        allowed = problem.constraint(encoders) if problem and settings.constrains else None
        only = allowed([text]) if allowed else None
        ids = search(model, [source_ids], settings, top_beams=1, constraint=only).ids[0, 0].numpy()
        target_ids = [*until_eos(ids), *[EOS_ID] * (EOS_ID in ids)] or [*ids[:1]]
    else:
        if parsing and target_text.lstrip().startswith("("):
            target_text = _tags(parsing, text, target_text)
        target_ids = _encoded(encoders["targets"], target_text, "target text")
    target = shown_tokens(encoders["targets"], target_ids, split_at_space=bool(parsing))
    return AttentionData(
        title=title,
        source=shown_tokens(encoders["inputs"], source_ids),
        target=target,
        **attention_weights(model, source_ids, target_ids),
        tree=parsing.format_output(text, target.text) if parsing else None,
    )


def require_both_sides(model, what: str, *stacks: str) -> None:
    """Raises UserError unless a model has two sides and layers in `stacks`, as `what` needs."""
    if model.members[0] is not model:
        raise UserError("an ensemble has no attention of its own: name one checkpoint.")
    two = model.has_memory and not model.prepends
    if not two or not all(getattr(model, stack).layers for stack in stacks):
        raise UserError(
            f"{what} needs a model with an encoder and a decoder, with layers, without prepend_mode: "
            "for others, call the model with return_attention_weights=True."
        )


def attention_weights(
    model, source_ids: Sequence[int], target_ids: Sequence[int]
) -> dict[str, Any]:
    """Returns the weights of one sentence pair for each of `KINDS`; see `AttentionData`.

    Its arguments are a `Transformer`, and S and T ids including end of sentence.
    """
    require_both_sides(model, "a picture of attention", "encoder", "decoder")
    pair = {"inputs": source_ids, "targets": target_ids}
    batch = {side: np.array([ids], np.int32) for side, ids in pair.items()}
    _, weights = model(batch, training=False, return_attention_weights=True)
    return {
        kind: np.stack([np.asarray(layer)[0] for layer in layers])
        for kind, layers in weights.items()
    }


def _encoded(encoder, text: str, name: str) -> list[int]:
    """Returns the ids of a text, including end of sentence."""
    try:
        ids = [*encoder.encode(text.strip()), EOS_ID]
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if len(ids) > MOST_TOKENS:
        raise UserError(
            f"the {name} has {len(ids)} tokens, including end of sentence; {MOST_TOKENS} are "
            "allowed: give a shorter one."
        )
    return ids


def _tags(problem, words: str, target: str) -> str:
    """Returns the tags of a tree in brackets."""
    tree = problem.prepare(parse_tree(target))
    tree_words, tags = linearize(tree) if tree else ("", "")
    if tree_words.split() != words.split():
        raise UserError(
            f"the tree's words are {tree_words!r} and those of the text {words.strip()!r}: "
            "they must be the same."
        )
    return tags
