"""Translation problems: on parallel files, as of the WMT workshops, and on any sentence pairs."""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from t2t_keras.data.generation import Cleaner, CleaningRules
from t2t_keras.data.problem import SPLITS, DatasetSplit, VocabType, missing_hook
from t2t_keras.data.sources import (
    compile_data,
    local_sources,
    read_pairs,
    read_sources,
    require_parallel,
    text_size,
)
from t2t_keras.data.text_problem import PathLike, Samples, Text2TextProblem
from t2t_keras.errors import UserError, nearest
from t2t_keras.files import content_digest, read_json, write_text
from t2t_keras.t2t_names import is_users_own
from t2t_keras.text.lines import iterate_lines
from t2t_keras.text.sentencepiece import MODEL_TYPES


class TranslateProblem(Text2TextProblem):
    """Translation with data from parallel files (T2T's `TranslateProblem`)."""

    vocab_file_budget = 1e6
    """How many characters of each file to use for the vocabulary (T2T's `file_byte_budget`)."""
    datatypes_to_clean: Sequence[str] = ()
    """T2T's cleaning by rules for English, which is not supported: must be empty."""

    is_generate_per_split = True

    def source_data_files(self, split: str) -> list:
        """Hook: returns the sources of a split; most are `[url, (source file, target file)]`.

        Files are relative to `tmp_dir`: see `t2t_keras.data.sources` for all kinds of sources.
        """
        raise missing_hook(self, "source_data_files")

    def vocab_data_files(self) -> list:
        """Returns the sources to build the vocabulary from; default: the training files."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def available(self, tmp_dir: PathLike, sources: Sequence) -> list:
        """Hook: returns the sources to use; default: all."""
        return list(sources)

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str, custom_iterator: Any = None
    ) -> Samples:
        """Returns the pairs of all sources of a split; drops pairs with an empty side.

        A `custom_iterator` makes samples of two files with all these pairs (T2T's), which methods of users read.
        """
        if self.datatypes_to_clean:
            raise UserError(
                f"The problem {self.name} asks for T2T's cleaning of {self.datatypes_to_clean}, which "
                "is not supported: remove datatypes_to_clean and use the --clean_* flags."
            )
        sources = self.available(tmp_dir, self.source_data_files(split))
        if custom_iterator or is_users_own(type(self), "generate_encoded_samples"):
            path = compile_data(tmp_dir, sources, f"{self.name}-compiled-{split}")
        if custom_iterator:
            return custom_iterator(f"{path}.lang1", f"{path}.lang2")
        return self.samples_of_pairs(read_sources(tmp_dir, sources, self.dropped))

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields about a million characters of each file, from lines spread over the file."""
        return self.generate_text_of_sides(tmp_dir, (0, 1))

    def generate_text_of_sides(self, tmp_dir: PathLike, sides: Sequence[int]) -> Iterator[str]:
        """Yields text for the vocabulary from the inputs (side 0), the targets (side 1) or both."""
        sources = self.available(tmp_dir, self.vocab_data_files())
        all_pairs = Path(tmp_dir) / f"{self.name}-compiled-train.lang1"  # which T2T writes first
        files = [s for s in sources if all_pairs.exists() or all_pairs.name not in str(s)]
        # A user's list may have other files than parallel ones, as in T2T.
        any_text = is_users_own(type(self), "vocab_data_files")
        found = iter(local_sources(tmp_dir, files, any_text))
        for source in sources:
            if source not in files:
                train = self.available(tmp_dir, self.source_data_files(DatasetSplit.TRAIN))
                yield from self.spread_pairs(tmp_dir, train, sides)
            elif (local := next(found)).kind == "text":
                for path in (p for n, p in enumerate(local.paths) if n in sides or n > 1):
                    lines, size = iterate_lines(path), text_size(path).bytes
                    yield from spread(lines, size, self.vocab_file_budget)
            else:
                yield from self.spread_pairs(tmp_dir, [source], sides)

    def spread_pairs(
        self, tmp_dir: PathLike, sources: Sequence, sides: Sequence[int]
    ) -> Iterator[str]:
        """Yields the text that T2T uses for the vocabulary after writing all pairs to two files."""
        sizes = [0, 0]
        for pair in read_sources(tmp_dir, sources, Counter()):
            for side in sides:
                sizes[side] += len(pair[side].encode()) + 1
        for side in sides:
            lines = (pair[side] for pair in read_sources(tmp_dir, sources, Counter()))
            yield from spread(lines, sizes[side], self.vocab_file_budget)


class TwoVocabularyProblem(TranslateProblem):
    """Translation with a subword vocabulary for each language."""

    @property
    def vocab_filenames(self) -> tuple[str, str]:
        """Hook: the names, in `data_dir`, of the vocabulary files of inputs and targets."""
        raise missing_hook(self, "vocab_filenames")

    @property
    def approx_vocab_sizes(self) -> tuple[int, int]:
        """The approximate sizes of the vocabularies of inputs and of targets."""
        return self.approx_vocab_size, self.approx_vocab_size

    def get_or_create_encoders(self, data_dir: PathLike, tmp_dir: PathLike | None) -> dict:
        encoders, sizes = {}, self.approx_vocab_sizes
        for n, (side, filename) in enumerate(zip(self.sides, self.vocab_filenames, strict=True)):
            text = None if tmp_dir is None else partial(self.generate_text_of_sides, tmp_dir, (n,))
            encoders[side] = self.stored_encoder(data_dir, filename, sizes[n], text)
        return encoders

    def feature_encoders(self, data_dir: PathLike) -> dict:
        return self.get_or_create_encoders(data_dir, None)


def spread(lines: Iterator[str], size: int, budget: float) -> Iterator[str]:
    """Yields the lines that T2T selects for its vocabulary: evenly spaced, up to `budget` characters."""
    skipped = int(size / budget / 2)
    left = budget
    for line in islice(lines, skipped, None, skipped + 1):
        if left <= 0:
            return
        line = line.strip()
        left -= len(line)
        yield line


# Sources of sentence pairs by split, and problems on them

VOCAB_CHARACTERS = 10_000_000  # of each side, from which a vocabulary is built


class PairSource(Protocol):
    """Sentence pairs by split."""

    left_out: Mapping[str, int] = {}
    """Training pairs that the source itself drops, by reason, once they have been read."""
    tags: Sequence[str] = ()
    """Words before source sentences that shall be single tokens."""

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields source and target of each pair, stripped, in the same order every time."""

    def count(self, split: str) -> int:
        """Returns the number of pairs."""

    def every(self, k: int, split: str, side: int) -> Iterator[str]:
        """Yields the source (side 0) or target (side 1) of pairs k, 2k, 3k, ..., counted from 1."""
        return (pair[side] for pair in islice(self.pairs(split), k - 1, None, k))

    def vocabulary_text(self, split: str, characters: int) -> Iterator[str]:
        """Yields about this many characters of each side, from evenly spaced pairs."""
        for side in (0, 1):
            every = partial(self.every, split=split, side=side)
            yield from evenly_spaced(every, self.count(split), characters)

    def description(self, split: str) -> dict:
        """Returns JSON values: "from" names the source; "identity" changes if the pairs change."""


class PairSourceProblem(Text2TextProblem):
    """Translation with data from a `PairSource`."""

    is_generate_per_split = True

    def source(self, tmp_dir: PathLike) -> PairSource:
        """Hook: returns the source; downloads go to `tmp_dir`."""
        raise missing_hook(self, "source")

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields the pairs of a split; drops and counts pairs with an empty side."""
        source = self.source(tmp_dir)
        yield from self.samples_of_pairs(source.pairs(split))
        if split == DatasetSplit.TRAIN:
            self.dropped.update(source.left_out)

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields evenly spaced training sentences, up to `VOCAB_CHARACTERS` of each side."""
        return self.source(tmp_dir).vocabulary_text(DatasetSplit.TRAIN, VOCAB_CHARACTERS)


# Parallel files: line N of one translates line N of the other

_Files = Mapping[str, Sequence[PathLike]]
# What Python's "surrogateescape" makes of wrong bytes, and the zeros of UTF-16.
_NOT_UTF8 = re.compile(r"[\0\udc80-\udcff]")


class ParallelFiles(PairSource):
    """Text files, plain or `.gz`.

    Args:
        files: the paths of source and target, by split.
        dev_pairs: training pairs to hold out, with their copies, as dev instead of files; 0: none.
        skip_bad_lines: leave out training pairs that are not UTF-8, which otherwise are an error.
    """

    def __init__(self, files: _Files, dev_pairs: int = 0, skip_bad_lines: bool = False):
        self.files = {split: [Path(p).expanduser() for p in pair] for split, pair in files.items()}
        self.dev_pairs = dev_pairs
        self._errors = {DatasetSplit.TRAIN: "surrogateescape"} if skip_bad_lines else {}

    @property
    def splits(self) -> list[str]:
        return list(self.files)

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields source and target of each line, stripped; see `read_pairs`."""
        if self.dev_pairs and split == DatasetSplit.EVAL:
            return iter(self._held_out)
        held_out = self._held_out if self.dev_pairs and split == DatasetSplit.TRAIN else ()
        return (pair for pair in self._lines(split) if pair not in held_out)

    def count(self, split: str) -> int:
        """Returns the number of lines, or that of the pairs held out."""
        if self.dev_pairs and split == DatasetSplit.EVAL:
            return len(self._held_out)
        return require_parallel(*self.files[split], errors=self._errors.get(split, "strict"))

    def description(self, split: str) -> dict:
        """Returns the paths of the files and digests of their contents."""
        self.count(split)
        origin = " and ".join(map(str, self.files[split]))
        origin += f" with --dev_pairs={self.dev_pairs}" * bool(self.dev_pairs)
        settings = [self.dev_pairs] if self.dev_pairs else []
        return {"from": origin, "identity": [*map(_digest, self.files[split]), *settings]}

    def _lines(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields the pairs of the files; counts and names those that are skipped."""
        bad, errors = list[int](), self._errors.get(split, "strict")
        for number, pair in enumerate(read_pairs(*self.files[split], errors=errors), start=1):
            if errors == "strict" or not _NOT_UTF8.search("".join(pair)):
                yield pair
            else:
                bad.append(number)
        if bad:
            shown = ", ".join(map(str, bad[:5])) + ", ..." * (len(bad) > 5)
            self.left_out = {f"not UTF-8 (line {shown})": len(bad)}

    @cached_property
    def _held_out(self) -> dict[tuple[str, str], None]:
        """The different pairs with the least digests: at random, but the same at every run."""
        if self.dev_pairs > (most := self.count(DatasetSplit.TRAIN) // 2):
            raise UserError(
                f"--dev_pairs={self.dev_pairs} is over half of the pairs: give at most {most}."
            )
        pairs = self._lines(DatasetSplit.TRAIN)
        least: dict[str, tuple[str, str]] = {}
        while block := list(islice(pairs, 2**16)):
            least |= {content_digest(repr(pair).encode()): pair for pair in block if all(pair)}
            least = dict(heapq.nsmallest(self.dev_pairs, least.items()))
        if len(least) < self.dev_pairs:
            raise UserError(f"--dev_pairs={self.dev_pairs}: only {len(least)} pairs are different.")
        return dict.fromkeys(least.values())


# A mix of several corpora

_RULES = {f"{rule.name}?": type(rule.default) for rule in dataclasses.fields(CleaningRules)}
_CORPUS: dict[str, Any] = {"weight?": float, "tag?": str, "clean?": _RULES}
_CORPUS |= {f"{split}?": [str] for split in SPLITS}
_CLEANED_AT_ONCE = 1024


class Corpus(NamedTuple):
    """A source in a mix."""

    source: PairSource
    weight: float | None = None
    """Relative share of its pairs in training; None: proportional to its size."""
    tag: str = ""  # word before each source sentence, such as "<2de>"
    clean: CleaningRules = CleaningRules()
    """Training pairs to drop, before tags are added and corpora are mixed."""


class MixedCorpora(PairSource):
    """Interleaves the training data of several corpora.

    With weights of 3 and 1, every four consecutive pairs have three from the first corpus and one
    from the second. A pass ends when every corpus has been read to its end; shorter ones restart
    meanwhile, so every pair is read and the ratio is exact. Training pairs with an empty side are
    dropped. Other splits are concatenated.
    """

    def __init__(self, corpora: Sequence[Corpus]):
        self.corpora = list(corpora)
        self.left_out: Counter[str] = Counter()  # each pair is counted once
        self.tags = list(dict.fromkeys(corpus.tag for corpus in self.corpora if corpus.tag))
        if any(tag.split() != [tag] for tag in self.tags):
            raise UserError(f"tags of corpora must be single words, got {self.tags}.")
        for split in (DatasetSplit.TRAIN, DatasetSplit.EVAL):
            if split not in self.splits:
                raise UserError(f"no corpus has {split}: name files for it in at least one.")
        weights = [corpus.weight for corpus in self._corpora_with(DatasetSplit.TRAIN)]
        if any(weight is not None and not 0.001 <= weight <= 1000 for weight in weights):
            raise UserError(f"weights of corpora must be from 0.001 to 1000, got {weights}.")
        if None in weights and any(weights):
            raise UserError(f"give all corpora a weight or none, got {weights}.")

    @classmethod
    def read(cls, path: PathLike) -> MixedCorpora:
        """Reads a JSON list of corpora: any of train, dev, test, weight, tag and clean of each."""
        corpora = []
        for number, item in enumerate(read_json(path, [_CORPUS])):
            clean = item.get("clean", {})
            _require_known(f"{path}: [{number}]", item, _CORPUS)
            _require_known(f"{path}: [{number}].clean", clean, _RULES)
            files = {split: item[split] for split in SPLITS if split in item}
            if DatasetSplit.TRAIN not in files and item.keys() & {"weight", "clean"}:
                raise UserError(f"{path}: [{number}] has no train, which weight and clean are for.")
            for split, pair in files.items():
                if len(pair) != 2:
                    what = "takes a source and a target file"
                    raise UserError(f"{path}: [{number}].{split} {what}, got {len(pair)}.")
            source, rules = ParallelFiles(files), CleaningRules(**clean)
            corpora.append(Corpus(source, item.get("weight"), item.get("tag", ""), rules))
        return cls(corpora)

    @property
    def splits(self) -> list[str]:
        there = {split for corpus in self.corpora for split in corpus.source.splits}
        return [split for split in SPLITS if split in there]

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        if split != DatasetSplit.TRAIN:
            for corpus in self._corpora_with(split):
                yield from _tagged(corpus, corpus.source.pairs(split))
            return
        weights, rounds = self._plan
        corpora = self._corpora_with(split)
        streams = [chain.from_iterable(map(_kept_pairs, repeat(corpus))) for corpus in corpora]
        # The corpus that is furthest behind its share is next, so every round has the exact ratio.
        behind = [0] * len(weights)
        for _ in range(rounds * sum(weights)):
            behind = [due + weight for due, weight in zip(behind, weights, strict=True)]
            chosen = behind.index(max(behind))
            behind[chosen] -= sum(weights)
            yield next(streams[chosen])

    def count(self, split: str) -> int:
        """Returns the number of pairs in a pass, those that come again included."""
        if split != DatasetSplit.TRAIN:
            return sum(corpus.source.count(split) for corpus in self._corpora_with(split))
        weights, rounds = self._plan
        return rounds * sum(weights)

    def description(self, split: str) -> dict:
        """Returns where the pairs are from, with weights, tags and cleaning rules."""
        origins, identity = [], []
        for corpus in self._corpora_with(split):
            description = corpus.source.description(split)
            weight, rules = None, {}
            if split == DatasetSplit.TRAIN:
                weight = corpus.weight
                rules = {rule: value for rule, value in vars(corpus.clean).items() if value}
            words = [] if weight is None else [f"weight {weight:g}"]
            words += [corpus.tag] * bool(corpus.tag)
            words += [f"{rule} {value}" for rule, value in rules.items()]
            origins.append(description["from"] + (f" ({', '.join(words)})" if words else ""))
            identity += [*description["identity"], weight, corpus.tag, *([rules] if rules else [])]
        return {"from": "; ".join(origins), "identity": identity}

    def _corpora_with(self, split: str) -> list[Corpus]:
        return [corpus for corpus in self.corpora if split in corpus.source.splits]

    @cached_property
    def _plan(self) -> tuple[list[int], int]:
        """The number of pairs of each corpus in a round, and the number of rounds in a pass."""
        sizes, shares = [], []
        for corpus in self._corpora_with(DatasetSplit.TRAIN):
            sizes.append(sum(1 for _ in _kept_pairs(corpus, self.left_out)))
            if not sizes[-1]:
                origin = corpus.source.description(DatasetSplit.TRAIN)["from"]
                what = "has no pairs, or cleaning leaves none"
                raise UserError(f"the corpus {origin} {what}: leave it out.")
            weight = sizes[-1] if corpus.weight is None else corpus.weight
            shares.append(Fraction(weight).limit_denominator(1000))
        unit = math.lcm(*(share.denominator for share in shares))
        weights = [int(share * unit) for share in shares]
        weights = [weight // math.gcd(*weights) for weight in weights]
        return weights, max(-(-size // weight) for size, weight in zip(sizes, weights, strict=True))


def _require_known(where: str, item: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    allowed = [name.rstrip("?") for name in kinds]
    for name in item:
        if name not in allowed:
            raise UserError(
                f"{where} has an unknown {name!r}; allowed: {', '.join(allowed)}.{nearest(name, allowed)}"
            )


def _kept_pairs(corpus: Corpus, dropped: Counter[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yields the training pairs that have two sides and that cleaning keeps, tagged; counts others."""
    cleaner, pairs = Cleaner(corpus.clean), iter(corpus.source.pairs(DatasetSplit.TRAIN))
    while block := list(islice(pairs, _CLEANED_AT_ONCE)):
        whole = [{"inputs": pair[0], "targets": pair[1]} for pair in block if all(pair)]
        cleaner.dropped["empty"] += len(block) - len(whole)
        kept = ((sample["inputs"], sample["targets"]) for sample in cleaner.keep(whole))
        yield from _tagged(corpus, kept)
    if dropped is not None:
        dropped += cleaner.dropped


def _tagged(corpus: Corpus, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the pairs with the corpus tag before each source sentence that is not empty."""
    for inputs, targets in pairs:
        yield f"{corpus.tag} {inputs}" if corpus.tag and inputs else inputs, targets


def _digest(path: Path) -> str:
    """Returns a digest of the contents, which are not read again before the file changes."""
    status = path.stat()
    return _digest_of_state(path, status.st_size, status.st_mtime_ns)


@lru_cache
def _digest_of_state(path: Path, size: int, changed: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


# A JSON note beside generated data that records its source: data from another one is not reused

_VOCABULARY = "vocabulary"


def check_and_note(problem: Text2TextProblem, source: PairSource, data_dir: PathLike) -> None:
    """Records the source of new data in `data_dir`; data made from another one is a `UserError`.

    A vocabulary that the note does not mention was put there by the user and is kept.
    """
    name = problem.dataset_filename()
    path = Path(data_dir) / f"source.{name}.json"
    noted: dict[str, dict] = {}
    if path.exists():
        remedy = "delete it with the data beside it, which is then made again"
        noted = read_json(path, {str: {"from": str, "identity": list}}, remedy)
    wanted = {split: source.description(split) for split in source.splits}
    wanted[_VOCABULARY] = _vocabulary(problem, wanted[DatasetSplit.TRAIN])
    vocabulary = Path(data_dir) / str(problem.vocab_filename)
    if vocabulary.exists() and _VOCABULARY not in noted:
        del wanted[_VOCABULARY]
    for part, description in wanted.items():
        # If the vocabulary file is gone, any shard stands for it: it contains the vocabulary's ids.
        pattern = f"{name}-*-of-*" if part == _VOCABULARY else f"{name}-{part}-*-of-*"
        has_shards = next(Path(data_dir).glob(pattern), None) is not None
        if has_shards or (part == _VOCABULARY and any(Path(data_dir).glob(f"vocab.{name}.*"))):
            old = noted.get(part, {"from": "an unknown source", "identity": None})
            if old["identity"] != description["identity"]:
                changed = " when its contents were different" * (old["from"] == description["from"])
                raise UserError(
                    f"the {part} in {data_dir} of {name} was made from {old['from']}{changed}, not from "
                    f"{description['from']}: delete the vocabulary and shards there, or give another "
                    "--data_dir."
                )
    if noted != (new := {**noted, **wanted}):
        write_text(path, json.dumps(new, indent=1, ensure_ascii=False) + "\n")


def _vocabulary(problem: Text2TextProblem, train: Mapping) -> dict[str, Any]:
    """Returns the description of a vocabulary's source: the training text or a given model."""
    model, size = problem.sentencepiece_model, problem.approx_vocab_size
    origin = f"{train['from']} with --vocab_size={size}"
    settings: list[Any] = [size]
    if problem.vocab_type == VocabType.SENTENCEPIECE:
        if model not in MODEL_TYPES:
            return {"from": model, "identity": [_digest(Path(model))]}
        origin, settings = f"{origin} --sentencepiece={model}", [size, model]
    return {"from": origin, "identity": [*train["identity"], *settings]}


# Text for a vocabulary: an evenly spaced sample of a corpus


def evenly_spaced(every: Callable, lines: int, characters: int) -> Iterator[str]:
    """Returns every k-th line of a text, about `characters` in total.

    k is chosen from the mean length of the first lines; a shorter text is yielded completely.
    `every(k)` returns lines k, 2k, 3k, ... of the text, counted from 1, which has `lines` lines.
    """
    first = [len(line) for line in islice(every(1), 1000)]
    expected = lines * sum(first) / max(len(first), 1)
    return spread(every(max(1, math.ceil(expected / characters))), 0, characters)
