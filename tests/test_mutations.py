"""Damaged and hostile files, records and answers end in one line, and no id out of range is used.

See mutations.py; the mutations are the same ones every time.
"""

import gzip
import io
import json
import random
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from mutations import NUMBER, mutated, mutated_json
from networks import small_model

from t2t_keras.allowed_values import INT32
from t2t_keras.data.generation.records import Lists, frame
from t2t_keras.data.shards import SIDES, StoredExamples, read_index
from t2t_keras.data.sources.data_files import LocalSource
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.export import ServedTransformer
from t2t_keras.serving import TextClient, connect
from t2t_keras.text import SubwordTextEncoder, TokenTextEncoder

VOCABULARY = 20
IDS = [*range(-3, VOCABULARY + 3), INT32, 2**32 + 7, 2**63 - 1, -(2**63)]


def generators():
    """A generator of random numbers for each mutation."""
    for number in range(NUMBER):
        yield random.Random(number)


def refused(error):
    """Checks that an error is one short line."""
    assert "\n" not in str(error)
    assert len(str(error)) <= 2000


# Examples, in shards and in requests


def features(generator):
    """Features of an Example, most of them as they should be."""

    def numbers():
        size = generator.choice([0, 1, 2, 2, 3, 3, 9])
        return [
            generator.choice(IDS[4:-7] if generator.random() < 0.9 else IDS) for _ in range(size)
        ]

    def feature():
        match generator.randint(0, 12):
            case 0:
                return tf.train.Feature(float_list=tf.train.FloatList(value=[1.5]))
            case 1:
                return tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\xff"]))
            case 2:
                return tf.train.Feature()
            case _:
                return tf.train.Feature(int64_list=tf.train.Int64List(value=numbers()))

    names = [*SIDES, *generator.choices(["batch_prediction_key", "", "inputs "], k=1)]
    return {name: feature() for name in names if generator.random() < 0.95}


def example(generator):
    made = tf.train.Example(features=tf.train.Features(feature=features(generator)))
    content = made.SerializeToString()
    return mutated(content, generator) if generator.random() < 0.3 else content


def ids_of(record, sides=SIDES):
    """The ids of an Example as TensorFlow parses it for training."""
    features = dict.fromkeys(sides, tf.io.RaggedFeature(tf.int64))
    parsed = tf.io.parse_single_example(record, features)
    return [i for side in sides for i in parsed[side].numpy().tolist()]


def header(length):
    """The beginning of a record that claims so many bytes."""
    content = length.to_bytes(8, "little")
    return content + framed([content])[-4:]


def framed(records):
    lengths = np.array([len(record) for record in records], np.int64)
    return frame(Lists(np.frombuffer(b"".join(records), np.uint8), lengths)).values.tobytes()


def read_all(directory):
    """The ids of all examples of a split, as training reads them."""
    index = read_index(directory, "toy", "train")
    stored = StoredExamples(index, dict.fromkeys(SIDES, VOCABULARY))
    return [ids_of(record) for record in stored.read(np.arange(len(index.sizes)))]


def test_shards(tmp_path):
    path = tmp_path / "toy-train-00000-of-00001"
    taken = 0
    for generator in generators():
        content = framed([example(generator) for _ in range(generator.randint(1, 2))])
        if generator.random() < 0.05:
            content = header(generator.choice([0, 10**9, 2**40, 2**62, 2**64 - 1])) + content
        path.write_bytes(mutated(content, generator) if generator.random() < 0.3 else content)
        (tmp_path / "index.toy-train.npz").unlink(missing_ok=True)
        try:
            found = read_all(tmp_path)
        except UserError as error:
            refused(error)
        else:
            taken += 1
            assert all(0 <= i < VOCABULARY for ids in found for i in ids)
    assert 0.05 * NUMBER < taken < 0.9 * NUMBER


def test_indices(tmp_path):
    record = tf.train.Example(
        features=tf.train.Features(
            feature={
                side: tf.train.Feature(int64_list=tf.train.Int64List(value=[5, 6, 1]))
                for side in SIDES
            }
        )
    ).SerializeToString()
    (tmp_path / "toy-train-00000-of-00001").write_bytes(framed([record] * 4))
    path = tmp_path / "index.toy-train.npz"
    assert read_all(tmp_path) == [[5, 6, 1] * 2] * 4
    whole = path.read_bytes()
    with np.load(path) as stored:
        columns = dict(stored)
    for generator in generators():
        if generator.random() < 0.5:
            path.write_bytes(mutated(whole, generator))
        else:
            changed = dict(columns)
            name = generator.choice([*columns])
            other = generator.choice([0, 1, 3, 5, 2**31, -1, 1.5, 2**63])
            size = generator.choice([0, 1, 4, 4, 5])
            changed[name] = (
                np.array([other] * size) if generator.random() < 0.5 else columns[name] + 1
            )
            if generator.random() < 0.1:
                del changed[name]
            with path.open("wb") as file:
                np.savez(file, **changed)
        try:
            assert read_all(tmp_path) == [[5, 6, 1] * 2] * 4
        except UserError as error:
            refused(error)


def test_examples_of_requests(eagerly):
    model = small_model(source_vocab=VOCABULARY, target_vocab=VOCABULARY)
    encoder = TokenTextEncoder(vocab_list=[f"w{n}" for n in range(VOCABULARY - 2)])
    settings = DecodeSettings(beam_size=1)
    served = ServedTransformer(model, dict.fromkeys(SIDES, encoder), settings)
    searched = []

    def search(rows, alpha, extra_length):
        searched.append(rows)
        return tf.zeros([rows.nrows(), 1, 1], tf.int32), tf.zeros([rows.nrows(), 1])

    served._parts.search = search
    for generator in generators():
        record = example(generator)
        try:
            served.serialized_example(tf.constant([record]))
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # its message quotes the bytes
            continue
        ids = searched[-1].flat_values.numpy().tolist()
        assert ids == ids_of(record, ["inputs"])
        assert all(0 <= i < VOCABULARY for i in ids)
    assert 0.2 * NUMBER < len(searched) < 0.95 * NUMBER


# Text


def test_vocabularies(tmp_path):
    path = tmp_path / "vocab"
    entries = ["<pad>", "<EOS>", "the_", "low", "er_", "est_", *"abcdelorstw_\\;0123456789"]
    contents = {
        SubwordTextEncoder: "".join(f"'{entry}'\n" for entry in entries),
        TokenTextEncoder: "<pad>\n<EOS>\nlow\nlower\n",
    }
    for generator in generators():
        kind = generator.choice([*contents])
        path.write_bytes(mutated(contents[kind].encode(), generator))
        try:
            encoder = kind(path)
            ids = encoder.encode("low lowest \u00fc 7")
        except UserError as error:
            refused(error)
        else:
            assert all(0 <= i < encoder.vocab_size for i in ids)
            assert isinstance(encoder.decode([*ids, *range(encoder.vocab_size), 10**6]), str)


TEXTS = {
    "text": ("one\ntwo \u2028 x\n\nfour\n", "eins\nzwei\n\nvier\n"),
    "sgm": ('<seg id="1">one</seg>\n<seg>two\n', '<seg id="1">eins</seg>\n<seg>zwei</seg>\n'),
    "tmx": ("<tu><seg>one &amp; 1</seg>\n<seg>eins</seg></tu>\n<tu>\n<seg>two</seg></tu>\n",),
    "tsv": ("one\teins\ntwo\n\tdrei\t3\n",),
}


def test_sources(tmp_path):
    for generator in generators():
        kind = generator.choice([*TEXTS])
        suffix = generator.choice(["", ".gz"])
        paths = [tmp_path / f"{number}{suffix}" for number in range(len(TEXTS[kind]))]
        changed = generator.randrange(len(paths))
        for number, (path, text) in enumerate(zip(paths, TEXTS[kind], strict=True)):
            content = text.encode()
            inside = generator.random() < 0.7
            if number == changed and inside:
                content = mutated(content, generator)
            content = gzip.compress(content) if suffix else content
            path.write_bytes(
                content if number != changed or inside else mutated(content, generator)
            )
        try:
            for pair in LocalSource(kind, paths).pairs():
                assert pair is None or [*map(type, pair)] == [str, str]
        except UserError as error:
            refused(error)


# Answers of a server


def metadata(output):
    tensors = {"inputs": {output.get("input", "text"): {}}}
    tensors["outputs"] = {name: {} for name in output["outputs"]}
    return {"metadata": {"signature_def": {"signature_def": {"serving_default": tensors}}}}


ANSWERS = [
    {"outputs": {"translations": [["a", "b"]], "scores": [[-1.5, -2]], "truncated": [False]}},
    {"input": "input", "outputs": {"outputs": [[5, 6, 1]], "scores": [-1.5]}},
    {"input": "input", "outputs": {"outputs": [[[5, 1], [6, 1]]], "scores": [[-1.5, -2]]}},
]


def test_answers_of_a_server(monkeypatch):
    decoded = []
    encoder = SimpleNamespace(
        encode=lambda text: [5], vocab_size=VOCABULARY, decode=lambda ids: str(decoded.extend(ids))
    )
    taken = 0
    for generator in generators():
        answer = generator.choice(ANSWERS)
        contents = [metadata(answer), {"outputs": answer["outputs"]}]
        contents = [json.dumps(content).encode() for content in contents]
        which = generator.randint(0, 1)
        if generator.random() < 0.8:
            contents[which] = mutated_json(json.loads(contents[which]), generator)
        else:
            contents[which] = mutated(contents[which], generator)
        model = connect("http://localhost:1", "turner")
        answers = iter(contents)
        monkeypatch.setattr(
            "urllib.request.urlopen",
            lambda *_, answers=answers, **__: io.BytesIO(next(answers)),
        )
        try:
            client = TextClient(model, encoders=dict.fromkeys(SIDES, encoder))
            (found,) = client.translate(["x"])
        except UserError as error:
            refused(error)
        else:
            taken += 1
            assert all(isinstance(text, str) for text in found.texts)
            assert [*map(type, found.scores)] == [float] * len(found.texts)
            assert type(found.truncated) is bool
    assert all(0 <= i < VOCABULARY for i in decoded)
    assert taken < 0.9 * NUMBER
