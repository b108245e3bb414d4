"""Damaged files, records and answers end in one line, and no id out of range is used: see mutations.py."""

import gzip
import io
import json
import random
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from mutations import mutations

from t2t_keras.data.shards import SIDES, StoredExamples, read_index
from t2t_keras.data.sources import LocalSource
from t2t_keras.errors import UserError
from t2t_keras.serving import TextClient, connect
from t2t_keras.text import SubwordTextEncoder, TokenTextEncoder


def example(folder, content):
    with tf.io.TFRecordWriter(str(folder / "toy-train-00000-of-00001")) as writer:
        writer.write(content)
    (folder / "index.toy-train.npz").unlink(missing_ok=True)
    index = read_index(folder, "toy", "train")
    [record] = StoredExamples(index, dict.fromkeys(SIDES, 20)).read(np.arange(1))
    parsed = tf.io.parse_single_example(record, dict.fromkeys(SIDES, tf.io.RaggedFeature(tf.int64)))
    assert all(0 <= i < 20 for side in SIDES for i in parsed[side].numpy())


def vocabulary(kind, folder, content):
    (folder / "vocab").write_bytes(content)
    encoder = kind(folder / "vocab")
    ids = encoder.encode("low lowest 7")
    assert all(0 <= i < encoder.vocab_size for i in ids)
    assert isinstance(encoder.decode([*ids, *range(encoder.vocab_size), 10**6]), str)


def source(kind, files, folder, content):
    for name in files:
        (folder / name).write_bytes(content)
    for pair in LocalSource(kind, folder, files).pairs():
        assert pair is None or [*map(type, pair)] == [str, str]


def answer(before, after, folder, content):
    decoded, answers = [], iter([*before, content, *after])
    encoder = SimpleNamespace(encode=lambda text: [5], vocab_size=20)
    encoder.decode = lambda ids: str(decoded.extend(ids))
    model = connect("http://localhost:1", "turner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO(next(answers)))
        [found] = TextClient(model, encoders=dict.fromkeys(SIDES, encoder)).translate(["x"])
    types = [str] * len(found.texts) + [float] * len(found.texts) + [bool]
    assert [*map(type, [*found.texts, *found.scores, found.truncated])] == types
    assert all(0 <= i < 20 for i in decoded)


def readers_and_whole_files():
    made = tf.train.Example()
    for side in SIDES:
        made.features.feature[side].int64_list.value.extend([5, 6, 1])
    yield example, made.SerializeToString(deterministic=True)
    pieces = ("<pad>", "<EOS>", "low", "er_", "est_", *"_elostw\\u;0123456789")
    yield partial(vocabulary, SubwordTextEncoder), "".join(f"'{p}'\n" for p in pieces).encode()
    yield partial(vocabulary, TokenTextEncoder), b"<pad>\n<EOS>\nlow\nlowest\n7\n"
    yield partial(source, "tmx", ["text"]), b"<tu><seg>a</seg>\n<seg>&amp;</seg></tu>\n<tu>"
    yield partial(source, "sgm", ["text", "text"]), b'<seg id="1">one</seg>\n<seg>two\n'
    yield partial(source, "tsv", ["text"]), b"one\teins\ntwo\n\tdrei\t3\n"
    yield (
        partial(source, "text", ["a.gz", "a.gz"]),
        gzip.compress(b"one\ntwo \xc3\xbc\n\nfour\n", mtime=0),
    )
    for given, outputs in (
        ("text", {"translations": [["a"]], "scores": [[-1.5]], "truncated": [False]}),
        ("input", {"outputs": [[[5, 1], [6, 1]]], "scores": [[-1.5, -2]]}),
    ):
        tensors = {"inputs": {given: {}}, "outputs": {o: {} for o in outputs}}
        signatures = {"signature_def": {"signature_def": {"serving_default": tensors}}}
        about = json.dumps({"metadata": signatures}).encode()
        said = json.dumps({"outputs": outputs}).encode()
        yield partial(answer, [], [said]), about
        yield partial(answer, [about], []), said


@pytest.mark.parametrize(("read", "whole"), [*readers_and_whole_files()])
def test_damaged_by_chance_it_is_read_or_refused(read, whole, tmp_path):
    read(tmp_path, whole)
    refused = 0
    for content in mutations(whole, random.Random(0)):
        try:
            read(tmp_path, content)
        except UserError as error:
            refused += 1
            assert re.fullmatch(".{1,2000}", str(error)), content  # one line
    assert refused
