"""T2T's text_encoder and generator_utils: a name does here what it does there."""

# ruff: noqa: E731 (functions of one expression)

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from t2t_keras.data.problem import SPLITS
from t2t_keras.data.sources import fetch, gunzip_file as gunzip_file, local_sources, text_size
from t2t_keras.data.translate import _spread
from t2t_keras.errors import UserError, warn
from t2t_keras.files import atomic_write
from t2t_keras.t2t_modules.absent import tensorflow
from t2t_keras.text import SubwordTextEncoder, iterate_lines
from t2t_keras.text.encoders import strip_ids

tf = tensorflow()  # imported when it is used
PAD, EOS = RESERVED_TOKENS = ["<pad>", "<EOS>"]
NUM_RESERVED_TOKENS, UNSHUFFLED_SUFFIX = 2, "-unshuffled"
is_unicode, unicode_to_native = str.__instancecheck__, str
to_unicode_utf8 = lambda s, errors="strict": s if is_unicode(s) else s.decode("utf-8", errors)
native_to_unicode = to_unicode_ignore_errors = partial(to_unicode_utf8, errors="ignore")
to_unicode = lambda s, ignore_errors=False: to_unicode_utf8(s, ("strict", "ignore")[ignore_errors])


class TextEncoder:
    """Base class of users' encoders; as it is, of numbers."""

    def __init__(self, num_reserved_ids=NUM_RESERVED_TOKENS):
        self.num_reserved_ids = self._num_reserved_ids = num_reserved_ids

    def encode(self, s):
        return [int(word) + self.num_reserved_ids for word in s.split()]

    def decode(self, ids, strip_extraneous=False):
        ids = strip_ids(ids, range(self.num_reserved_ids)) if strip_extraneous else ids
        return " ".join(self.decode_list(ids))

    def decode_list(self, ids):
        n = self.num_reserved_ids
        return [RESERVED_TOKENS[i] if 0 <= i < n else str(i - n) for i in ids]


def get_or_generate_vocab_inner(
    data_dir, vocab_filename, vocab_size, generator, max_subtoken_length=None, reserved_tokens=None
):
    path = data_dir and vocab_filename and os.path.join(data_dir, vocab_filename)
    if path and os.path.exists(path):
        return SubwordTextEncoder(path)
    options = vocab_size, max_subtoken_length, reserved_tokens
    encoder = SubwordTextEncoder.build_from_generator(generator, *options)
    if path:
        os.makedirs(data_dir, exist_ok=True)
        with atomic_write(path) as part:
            encoder.store_to_file(part)
    return encoder


def generate_lines_for_vocab(tmp_dir, sources, file_byte_budget=1e6):
    for url in [source[0] for source in sources if os.path.isfile(source[0])]:
        maybe_download(tmp_dir, os.path.basename(url), url)
    files = [[source[0], [name]] for source in sources for name in source[1]]
    for [path] in (source.paths for source in local_sources(tmp_dir, files, single=True)):
        yield from _spread(iterate_lines(path), text_size(path).bytes, file_byte_budget)


def get_or_generate_vocab(
    data_dir, tmp_dir, vocab_filename, vocab_size, sources, file_byte_budget=1e6, **limit
):
    lines = generate_lines_for_vocab(tmp_dir, sources, file_byte_budget)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, lines, **limit)


def maybe_download(directory, filename, uri):
    uri = Path(uri).absolute().as_uri() if os.path.isfile(uri) else uri
    return os.fspath(fetch(uri, os.path.join(directory, filename)))


maybe_download_from_drive = lambda directory, filename, url: maybe_download(
    directory, filename, f"{url}{'&' if '?' in url else '?'}confirm=t"
)
sharded_name = "{}-{:05d}-of-{:05d}".format
shard_filepath = lambda fname, num_shards: [
    sharded_name(fname, shard, num_shards) for shard in range(num_shards)
]
_paths = lambda split, problem, output_dir, num_shards: [
    os.path.join(output_dir, name) for name in shard_filepath(f"{problem}-{split}", num_shards)
]
train_data_filenames, dev_data_filenames, test_data_filenames = [partial(_paths, s) for s in SPLITS]
_shuffled = lambda path: path.replace(UNSHUFFLED_SUFFIX, "")
outputs_exist = lambda filenames: next(filter(os.path.exists, map(_shuffled, filenames)), None)
read_records = lambda filename: [*tf.data.TFRecordDataset(filename).as_numpy_iterator()]
_LISTS = {**dict.fromkeys("iu", "int64_list"), "f": "float_list", "S": "bytes_list"}


def to_example(dictionary):
    example = tf.train.Example()
    for name, values in dictionary.items():
        values = [value.encode() if is_unicode(value) else value for value in values]
        if not (kind := values and _LISTS.get(np.asarray(values[0]).dtype.kind)):
            raise UserError(f"{name!r} of an example is {values}: give integers, floats or texts.")
        getattr(example.features.feature[name], kind).value.extend(values)
    return example


def generate_files(generator, output_filenames, max_cases=None, cycle_every_n=1):
    if found := outputs_exist(output_filenames):
        return warn(f"{found} is there, so that no examples are made")
    parts = [f"{name}.incomplete" for name in output_filenames]
    with ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(part)) for part in parts]
        for i, case in enumerate(islice(filter(None, generator), max_cases or None)):
            writers[i // cycle_every_n % len(writers)].write(to_example(case).SerializeToString())
    for part, name in zip(parts, output_filenames, strict=True):
        os.replace(part, name)


def write_records(records, out_filename):
    with atomic_write(out_filename) as part, tf.io.TFRecordWriter(os.fspath(part)) as writer:
        for record in records:
            writer.write(record)


def shuffle_dataset(filenames, extra_fn=None):
    for name in filenames:
        if not os.path.exists(_shuffled(name)):
            random.shuffle(found := read_records(name))
            write_records(extra_fn(found) if extra_fn else found, _shuffled(name))
            os.remove(name)


def generate_dataset_and_shuffle(train_gen, train_paths, dev_gen, dev_paths, shuffle=True):
    generate_files(train_gen, train_paths)
    generate_files(dev_gen, dev_paths)
    shuffle_dataset([*train_paths, *dev_paths] if shuffle else [])
