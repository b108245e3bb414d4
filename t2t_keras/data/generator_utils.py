"""Samples from text files, vocabularies and shards by T2T's names, for problems that make them themselves.

They are those of T2T's `generator_utils`, `text_problems` and `translate`, with its arguments.
"""

import glob
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.problem import SPLITS
from t2t_keras.data.records import pack
from t2t_keras.data.shards import shard_paths
from t2t_keras.data.sources import PathLike, fetch, local_sources, text_size
from t2t_keras.data.translate import spread
from t2t_keras.errors import UserError, warn
from t2t_keras.files import atomic_write
from t2t_keras.ids import EOS_ID
from t2t_keras.text import ClassLabelEncoder, SubwordTextEncoder, iterate_lines
from t2t_keras.text.lines import warn_once

Samples = Iterator[dict[str, Any]]

# Samples from text files


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the lines of a text file, stripped."""
    return map(str.strip, iterate_lines(txt_path))


def txt_line_sharded_iterator(txt_pattern: str) -> Iterator[str]:
    """Yields the lines of all files that match a pattern."""
    return chain.from_iterable(map(txt_line_iterator, sorted(glob.glob(txt_pattern))))


def _side_by_side(fields: list[str], paths: list[str], read=txt_line_iterator) -> Samples:
    """Yields a line of each file by its field, up to the end of the shortest, as T2T does."""
    for lines in zip_longest(*map(read, paths)):
        if None in lines:
            ended = paths[lines.index(None)]
            others = " and ".join({*paths} - {ended})
            return warn_once(f"{ended} ends before {others}: the rest is left out")
        yield dict(zip(fields, lines, strict=True))


def text2self_txt_iterator(txt_path: str) -> Samples:
    """Yields {"targets": line}."""
    return _side_by_side(["targets"], [txt_path])


def text2text_txt_iterator(source_txt_path: str, target_txt_path: str) -> Samples:
    """Yields {"inputs": line, "targets": line} of two files."""
    return _side_by_side(["inputs", "targets"], [source_txt_path, target_txt_path])


def text2text_txt_sharded_iterator(source_txt_pattern: str, target_txt_pattern: str) -> Samples:
    """Yields {"inputs": line, "targets": line} of all files that match two patterns."""
    patterns = [source_txt_pattern, target_txt_pattern]
    return _side_by_side(["inputs", "targets"], patterns, txt_line_sharded_iterator)


def text2text_distill_iterator(
    source_txt_path: str, target_txt_path: str, distill_txt_path: str
) -> Samples:
    """Yields {"inputs": line, "targets": line, "dist_targets": line} of three files."""
    paths = [source_txt_path, target_txt_path, distill_txt_path]
    return _side_by_side(["inputs", "targets", "dist_targets"], paths)


def text2text_txt_iterator_with_index(source_txt_path: str, target_txt_path: str) -> Samples:
    """Yields the samples of `text2text_txt_iterator` with their number, "idx"."""
    for i, sample in enumerate(text2text_txt_iterator(source_txt_path, target_txt_path)):
        yield sample | {"idx": [i]}


def text2text_txt_tab_iterator(txt_path: str) -> Samples:
    """Yields {"inputs": text, "targets": text} of lines with a tab in between."""
    read = txt_line_sharded_iterator if txt_path.endswith("*") else txt_line_iterator
    for inputs, tab, targets in (line.partition("\t") for line in read(txt_path)):
        if tab:
            yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2class_txt_iterator(
    source_txt_path: str, label_txt_path: str, class_strs: Sequence[str] | None = None
) -> Samples:
    """Yields {"inputs": line, "label": number} of a text and a file of numbers, or of `class_strs`."""
    encoder = ClassLabelEncoder(class_strs) if class_strs else None
    for sample in text2text_txt_iterator(source_txt_path, label_txt_path):
        label: Any = encoder.encode(sample["targets"]) if encoder else sample["targets"]
        # A label that is not a number is refused with its sample.
        yield {"inputs": sample["inputs"], "label": int(label) if str(label).isdecimal() else label}


def text2real_txt_iterator(source_txt_path: str, target_txt_path: str) -> Samples:
    """Yields {"inputs": line, "targets": numbers} of a text and a file of numbers."""
    for sample in text2text_txt_iterator(source_txt_path, target_txt_path):
        yield sample | {"targets": [float(number) for number in sample["targets"].split()]}


def text2text_txt_iterator_with_label(source_txt_path: str, target_txt_path: str) -> Samples:
    """Yields the samples of two files with the "extra_label" at the end of a target's line."""
    for sample in text2text_txt_iterator(source_txt_path, target_txt_path):
        text, label = _text_and_label(sample["targets"])
        yield sample | {"targets": text, "extra_label": [label]}


def txt_and_label_iterator(txt_path: str) -> Iterator[tuple[str, int]]:
    """Yields text and label of lines `TEXT<tab>Extra_Label: NUMBER`."""
    return map(_text_and_label, txt_line_iterator(txt_path))


def _text_and_label(line: str) -> tuple[str, int]:
    text, _, label = line.rpartition("\tExtra_Label:")
    if not label.strip().removeprefix("-").isdecimal():
        raise UserError(f"{line!r} does not end in a tab and 'Extra_Label: NUMBER'.")
    return text, int(label)


def text2text_generate_encoded(
    sample_generator: Iterable[Mapping],
    vocab: Any,
    targets_vocab: Any = None,
    has_inputs: bool = True,
    inputs_prefix: str = "",
    targets_prefix: str = "",
) -> Samples:
    """Yields samples with ids, which end in `EOS_ID`, in place of the texts of "inputs" and "targets"."""
    sides = [("inputs", vocab, inputs_prefix)] * has_inputs
    sides.append(("targets", targets_vocab or vocab, targets_prefix))
    for sample in sample_generator:
        ids = {s: [*coder.encode(prefix + sample[s]), EOS_ID] for s, coder, prefix in sides}
        yield {**sample, **ids}


def bi_vocabs_token_generator(
    source_path: str, target_path: str, source_vocab: Any, target_vocab: Any, eos: int | None = None
) -> Samples:
    """Yields the ids of two files, which end in `eos` if given."""
    ends = [] if eos is None else [eos]
    encoders = {"inputs": source_vocab, "targets": target_vocab}
    for sample in text2text_txt_iterator(source_path, target_path):
        yield {side: encoder.encode(sample[side]) + ends for side, encoder in encoders.items()}


def token_generator(
    source_path: str, target_path: str, token_vocab: Any, eos: int | None = None
) -> Samples:
    """Yields the ids of two files, with one vocabulary."""
    return bi_vocabs_token_generator(source_path, target_path, token_vocab, token_vocab, eos)


character_generator = token_generator

# Files and vocabularies


def maybe_download(directory: PathLike, filename: str, uri: str) -> str:
    """Returns the path of a file in a directory; fetches it from an address or path unless it is there."""
    return os.fspath(fetch(uri, os.path.join(directory, filename)))


def maybe_download_from_drive(directory: PathLike, filename: str, url: str) -> str:
    """Returns the path of a file; fetches it from Google Drive unless it is there."""
    return maybe_download(directory, filename, f"{url}{'&' if '?' in url else '?'}confirm=t")


def generate_lines_for_vocab(
    tmp_dir: PathLike, sources: Sequence, file_byte_budget: float = 1e6
) -> Iterator[str]:
    """Yields lines spread over each file of sources `[url, files]`, up to a number of characters each."""
    files = [[source[0], [name]] for source in sources for name in source[1]]
    for [path] in (source.paths for source in local_sources(tmp_dir, files, any_text=True)):
        yield from spread(iterate_lines(path), text_size(path).bytes, file_byte_budget)


def get_or_generate_vocab(
    data_dir: PathLike,
    tmp_dir: PathLike,
    vocab_filename: str,
    vocab_size: int,
    sources: Sequence,
    file_byte_budget: float = 1e6,
    max_subtoken_length: int | None = None,
) -> SubwordTextEncoder:
    """Returns the encoder of a vocabulary file, which is built from sources if it is absent."""
    lines = generate_lines_for_vocab(tmp_dir, sources, file_byte_budget)
    return get_or_generate_vocab_inner(
        data_dir, vocab_filename, vocab_size, lines, max_subtoken_length
    )


def get_or_generate_txt_vocab(
    data_dir: PathLike, vocab_filename: str, vocab_size: int, filepatterns: str | Sequence[str]
) -> SubwordTextEncoder:
    """Returns the encoder of a vocabulary file, which is built from text files if it is absent."""
    patterns = [filepatterns] if isinstance(filepatterns, str) else filepatterns
    lines = chain.from_iterable(map(txt_line_sharded_iterator, patterns))
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, lines)


def get_or_generate_tabbed_vocab(
    data_dir: PathLike,
    tmp_dir: PathLike,
    source_filename: str,
    index: int,
    vocab_filename: str,
    vocab_size: int,
) -> SubwordTextEncoder:
    """The same of one side (0 or 1) of lines with a tab in between."""
    side = ("inputs", "targets")[index]
    rows = text2text_txt_tab_iterator(os.path.join(tmp_dir, source_filename))
    texts = (row[side] for row in rows)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def get_or_generate_vocab_inner(
    data_dir: PathLike | None,
    vocab_filename: str | None,
    vocab_size: int,
    generator: Iterable[str],
    max_subtoken_length: int | None = None,
    reserved_tokens: Sequence[str] | None = None,
) -> SubwordTextEncoder:
    """Returns the encoder of a vocabulary file, which is built from texts, and stored, if it is absent."""
    path = os.path.join(data_dir, vocab_filename) if data_dir and vocab_filename else ""
    if os.path.exists(path):
        return SubwordTextEncoder(path)
    encoder = SubwordTextEncoder.build_from_generator(
        generator, vocab_size, max_subtoken_length, reserved_tokens
    )
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            encoder.store_to_file(part)
    return encoder


# Shards

UNSHUFFLED_SUFFIX = "-unshuffled"


def _paths(split: str, problem: str, output_dir: PathLike, num_shards: int) -> list[str]:
    return [*map(os.fspath, shard_paths(output_dir, problem, split, num_shards))]


train_data_filenames, dev_data_filenames, test_data_filenames = (
    partial(_paths, split) for split in SPLITS
)


def combined_data_filenames(
    problem: str, output_dir: PathLike, num_training_shards: int
) -> list[str]:
    """Returns the paths of the training shards, and of one shard of dev and one of test."""
    counts = zip(SPLITS, (num_training_shards, 1, 1), strict=True)
    return [path for split, count in counts for path in _paths(split, problem, output_dir, count)]


def outputs_exist(filenames: Iterable[str]) -> str | None:
    """Returns the first file that exists under its final name; None: none does."""
    return next(filter(os.path.exists, map(_shuffled, filenames)), None)


def _shuffled(filename: str) -> str:
    return filename.replace(UNSHUFFLED_SUFFIX, "")


_LISTS = {"i": "int64_list", "u": "int64_list", "f": "float_list", "S": "bytes_list"}


def to_example(dictionary: Mapping[str, Sequence]) -> Any:
    """Returns a `tf.train.Example` of lists of integers, floats or texts."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, values in dictionary.items():
        values = [value.encode() if isinstance(value, str) else value for value in values]
        if not (kind := values and _LISTS.get(np.asarray(values[0]).dtype.kind)):
            raise UserError(f"{name!r} of an example is {values}: give integers, floats or texts.")
        getattr(example.features.feature[name], kind).value.extend(values)
    return example


def generate_files(
    generator: Iterable[Mapping],
    output_filenames: Sequence[str],
    max_cases: int | None = None,
    cycle_every_n: int = 1,
) -> None:
    """Writes examples to shards in turn, `cycle_every_n` at a time, unless there are any already."""
    import tensorflow as tf

    if found := outputs_exist(output_filenames):
        warn(f"{found} exists, so no examples are generated")
        return
    with ExitStack() as stack:
        parts = [stack.enter_context(atomic_write(name)) for name in output_filenames]
        writers = [stack.enter_context(tf.io.TFRecordWriter(os.fspath(part))) for part in parts]
        for i, case in enumerate(islice(filter(None, generator), max_cases or None)):
            writers[i // cycle_every_n % len(writers)].write(to_example(case).SerializeToString())


def read_records(filename: str) -> list[bytes]:
    """Returns the records of a TFRecord file."""
    import tensorflow as tf

    return [*tf.data.TFRecordDataset(filename).as_numpy_iterator()]


def write_records(records: Iterable[bytes], out_filename: str) -> None:
    """Writes a TFRecord file."""
    import tensorflow as tf

    with atomic_write(out_filename) as part, tf.io.TFRecordWriter(os.fspath(part)) as writer:
        for record in records:
            writer.write(record)


def shuffle_dataset(filenames: Sequence[str], extra_fn: Callable | None = None) -> None:
    """Shuffles the records within each file, which then has its final name."""
    for name in filenames:
        if not os.path.exists(_shuffled(name)):
            records = read_records(name)
            random.shuffle(records)
            write_records(extra_fn(records) if extra_fn else records, _shuffled(name))
            os.remove(name)


def generate_dataset_and_shuffle(
    train_gen: Iterable[Mapping],
    train_paths: Sequence[str],
    dev_gen: Iterable[Mapping],
    dev_paths: Sequence[str],
    shuffle: bool = True,
) -> None:
    """Writes the shards of two splits."""
    generate_files(train_gen, train_paths)
    generate_files(dev_gen, dev_paths)
    if shuffle:
        shuffle_dataset([*train_paths, *dev_paths])


def pack_examples(
    examples: Iterable[Mapping],
    has_inputs: bool,
    packed_length: int = 256,
    spacing: int = 2,
    queue_size: int = 10,
    chop_long_sequences: bool = False,
) -> Iterator[Mapping]:
    """Packs several examples into each row; see `records.pack`, which has T2T's queue and chops."""
    sides = ("inputs", "targets") if has_inputs else ("targets",)
    rows = ({side: list(each[side]) for side in sides} for each in examples)
    return pack(rows, packed_length, spacing, queue_size, chop_long_sequences)
