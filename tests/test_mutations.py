"""Damaged files, records and answers end in a result or in one line, soon and without much memory.

No id out of range is used, and no wrong content: see mutations.py.
"""

import gzip
import io
import json
import random
import re
import resource
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import run_files
import tensorflow as tf
import toy
from corpus_files import write_archive, write_lines, write_shards
from mutations import SEED, mutations
from test_run_directory import read_all
from test_sources import NAMES, everything_in, unpacked

import t2t_keras as t2t
from t2t_keras import checkpoints, registry
from t2t_keras.data.shards import SIDES, StoredExamples, read_index
from t2t_keras.data.sources import LocalSource
from t2t_keras.data.translate import MixedCorpora
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.parsing import read_trees
from t2t_keras.problems.translate_files import Text2textTmpdirTokens
from t2t_keras.serving import TextClient, connect
from t2t_keras.text import SubwordTextEncoder, TokenTextEncoder
from t2t_keras.training import Trainer, TrainSettings

SECONDS, MEGABYTES = 5, 400
"""Of the processor for one file, and of memory for all of a kind."""


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


PAIRS = [dict(zip(SIDES, ids, strict=True)) for ids in (([5, 6, 1], [7, 1]), ([8, 1], [9, 9, 1]))]


def shards(name, folder, content):
    """An index that does not fit, or a record whose checksum does not, is not believed."""
    written_shards(folder)
    (folder / name).write_bytes(content)
    stored = StoredExamples(read_index(folder, "toy", "train"), dict.fromkeys(SIDES, 20))
    records = [tf.train.Example.FromString(each) for each in stored.read(np.arange(len(stored)))]
    found = [{s: [*each.features.feature[s].int64_list.value] for s in SIDES} for each in records]
    assert found == PAIRS[: len(found)] or "index" not in name


def archive(name, folder, content):
    """All of the right files come out, or none; a tar archive that is not compressed may hold any."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / name).write_bytes(content)
    try:
        found = unpacked(folder / name, MEMBERS.__contains__)
    except UserError:
        assert everything_in(folder / "out") == {}
        raise
    assert found.items() <= MEMBERS.items() or name == "a.tar"


MEMBERS = {"in/a": b"eins\nzwei\n" * 30, "in/b": random.Random(0).randbytes(400)}


def run_file(name, folder, content):
    if not (folder / "model.ckpt-200.index").exists():
        run_files.write_run(folder)
        (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-200"\n')
        if name == "flags.txt":
            (folder / "run.json").unlink()
    (folder / name).write_bytes(content)
    read_all(folder)


def checkpoint(suffix, folder, content):
    run_files.write_run(folder)
    (folder / f"model.ckpt-200{suffix}").write_bytes(content)
    [array] = checkpoints.read(str(folder / "model.ckpt-200")).values()
    assert array.shape == (3, 5) and not array.any()


def corpora(folder, content):
    for side in ("a", "b"):
        write_lines(folder / side, ["one", "two"])
    (folder / "corpora.json").write_bytes(content.replace(b"DIR", bytes(folder)))
    MixedCorpora.read(folder / "corpora.json").description("train")


def trees(folder, content):
    read_trees(content.decode("utf-8", "replace"))


def source(kind, files, folder, content):
    for name in files:
        (folder / name).write_bytes(content)
    for pair in LocalSource(kind, folder, files).pairs():
        assert pair is None or [*map(type, pair)] == [str, str]


class Response(io.BytesIO):
    status, reason = 200, "OK"


def answer(before, after, folder, content):
    decoded, answers = [], iter([*before, content, *after])
    encoder = SimpleNamespace(encode=lambda text: [5], vocab_size=20)
    encoder.decode = lambda ids: str(decoded.extend(ids))
    model = connect("http://localhost:1", "turner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("urllib.request.urlopen", lambda *_, **__: Response(next(answers)))
        [found] = TextClient(model, encoders=dict.fromkeys(SIDES, encoder)).translate(["x"])
    types = [str] * len(found.texts) + [float] * len(found.texts) + [bool]
    assert [*map(type, [*found.texts, *found.scores, found.truncated])] == types
    assert all(0 <= i < 20 for i in decoded)


def written_shards(folder):
    write_shards(folder, "toy", "train", PAIRS)
    read_index(folder, "toy", "train")


def file_of(make, name):
    """The content of a file in what `make` writes to a directory."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return (Path(folder) / name).read_bytes()


def readers_and_whole_files():
    shard, index = "toy-train-00000-of-00001", "index.toy-train.npz"
    for name in (shard, index):
        yield partial(shards, name), file_of(written_shards, name)
    for name in NAMES:
        packed = file_of(lambda at, n=name: write_archive(at / n, MEMBERS), name)
        yield partial(archive, name), packed
    for name in ("run.json", "hparams.json", "evaluations.jsonl", "best"):
        yield partial(run_file, name), file_of(run_files.write_run, name)
    yield partial(run_file, "checkpoint"), b'model_checkpoint_path: "model.ckpt-200"\n'
    yield partial(run_file, "flags.txt"), b"--train_steps=400\n--worker_gpu=1\n--problem=p\n"
    for suffix in (".index", ".data-00000-of-00001"):
        yield partial(checkpoint, suffix), file_of(run_files.write_run, f"model.ckpt-200{suffix}")
    item = {"train": ["DIR/a", "DIR/b"], "dev": ["DIR/a", "DIR/b"], "weight": 2.0, "tag": "<2b>"}
    yield corpora, json.dumps([item, {**item, "clean": {"max_ratio": 2.0}}]).encode()
    yield trees, b"(TOP (S (NP (NN tea)) (VP (VBZ is))))\n(TOP (NP (NN cup)))\n"
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
    packed = gzip.compress(b"one\ntwo \xc3\xbc\n\nfour\n", mtime=0)
    yield partial(source, "text", ["a.gz", "a.gz"]), packed
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


def assert_one_line(error, content):
    assert re.fullmatch(".{1,2000}", str(error)), content


def shown(value):
    """The name of a reader in that of its test."""
    parts = (value.func, *value.args) if isinstance(value, partial) else (value,)
    named = [part for part in parts if callable(part) or isinstance(part, str)]
    return "-".join(p if isinstance(p, str) else p.__name__ for p in named)


def too_long(*_):
    raise TimeoutError(f"more than {SECONDS} seconds for one file")


@pytest.fixture
def clock():
    """Reads within so many seconds of the processor."""
    before = signal.signal(signal.SIGPROF, too_long)
    yield lambda seconds: signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize(("read", "whole"), [*readers_and_whole_files()], ids=shown)
def test_damaged_by_chance_it_is_read_or_refused(read, whole, tmp_path, clock):
    read(tmp_path, whole)
    refused, chance = 0, random.Random(SEED)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MEGABYTES * 1024
    for content in mutations(whole, chance):
        clock(SECONDS)
        try:
            read(tmp_path, content)
        except UserError as error:
            refused += 1
            assert_one_line(error, content)
        except BaseException:
            (tmp_path.parent / "failed").write_bytes(content)
            raise
    clock(0)
    assert refused or shown(read) in ("shards-index.toy-train.npz", "archive-a.tar")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most


# Files of one directory that stand in another


def run_with(folder, steps, heads):
    """Trains on the data below a folder into the run there; returns weights and figures."""
    settings = {"num_hidden_layers": 1, "hidden_size": 16, "filter_size": 16, "batch_size": 64}
    decode = DecodeSettings(beam_size=1, extra_length=1)
    Trainer(
        registry.problem("exchanged_words"),
        registry.hparams(toy.hparams(**settings, num_heads=heads)),
        str(folder / "data"),
        str(folder / "run"),
        TrainSettings(train_steps=steps, local_eval_frequency=2, eval_steps=1, decode=decode),
    ).run()
    arrays = checkpoints.read(str(folder / f"run/model.ckpt-{steps}"))
    return {name: array.tobytes() for name, array in arrays.items()}


def translate_with(folder):
    settings = {"data_dir": folder / "data", "decode_hparams": "beam_size=2,extra_length=3"}
    found = t2t.load(folder / "run", **settings).translator().translate(["a b c", "h g f e", "d"])
    return [(each.texts, np.round(each.scores, 4).tolist()) for each in found]


@pytest.fixture
def both(tmp_path, eagerly):
    """Two directories of data with a run each: alike in sizes, and not in content."""

    @registry.register_problem
    class ExchangedWords(Text2textTmpdirTokens):
        dataset_splits = [{"split": "train", "shards": 2}, {"split": "dev", "shards": 1}]

    letters = "abcdefgh"
    for number, words in enumerate((letters, letters[::-1])):
        folder = tmp_path / str(number)
        write_lines(folder / "vocab.txt", words)
        for name, count in (("train", 40), ("eval", 6)):
            rows = toy.rows(count, seed=count)[:: 1 - 2 * number]
            rows = [row.translate(str.maketrans(letters, words)) for row in rows]
            write_lines(folder / f"inputs.{name}.txt", rows)
            write_lines(folder / f"targets.{name}.txt", [row[::-1] for row in rows])
        registry.problem("exchanged_words").generate_data(folder / "data", folder)
        run_with(folder, 2, heads=1 + number)
    return tmp_path / "0", tmp_path / "1"


# Not refused: shards of dev (a line says that figures change), those with as many examples of the same lengths
# (their content is not compared), and evaluations.jsonl (then `best` is another).
NOT_REFUSED = re.compile(r"exchanged.*dev-0.*|evaluations\.jsonl|events.*|counts.*")


def test_a_file_of_another_directory_is_refused_or_changes_nothing(both, tmp_path):
    one, other = both
    copies = (shutil.copytree(one, tmp_path / str(n)) for n in range(2, 100))
    kinds = {"translated": translate_with, "resumed": partial(run_with, steps=3, heads=1)}
    wanted, refused = {kind: read(next(copies)) for kind, read in kinds.items()}, []
    for path in sorted(each for each in other.rglob("*") if each.is_file()):
        name = path.relative_to(other)
        if name.parts[0] not in ("data", "run") or NOT_REFUSED.fullmatch(name.name):
            continue
        folder = next(copies)
        shutil.copy(path, folder / name)
        for kind, read in kinds.items():
            try:
                assert read(folder) == wanted[kind], (kind, name)
            except UserError as error:
                assert_one_line(error, name)
                refused.append((kind, name.name))
    vocabulary, checkpoint = "vocab.exchanged_words.tokens", "model.ckpt-2.data-00000-of-00001"
    for name in (vocabulary, checkpoint, "model.ckpt-2.index", "run.json"):
        assert {("translated", name), ("resumed", name)} <= {*refused}
