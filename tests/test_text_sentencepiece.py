"""SentencePiece: ids equal in Python, in a graph and in exports; sampling; problems and commands with it."""

import json
import pickle
import random
import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
from hypothesis import strategies as st
from mutations import mutations
from networks import small_model
from properties import SEED, holds
from test_text_graph import TEXTS, Server, decoded, encoded, padded

import t2t_keras as t2t
from t2t_keras import data, registry
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export.ctranslate2 import export_ctranslate2
from t2t_keras.inspection.tokens import shown_tokens
from t2t_keras.settings import HParams
from t2t_keras.text import SentencePieceEncoder, sentencepiece as ours
from t2t_keras.training import Trainer, TrainSettings

sentencepiece = pytest.importorskip("sentencepiece", reason="the package is not installed")

LINES = [
    *("Zwei junge Männer, low lower lowest.", "lowland, slow 3.14; 日本語の 日本 Straße"),
    *(" ".join(f"{word}{end}" for word in ("play", "walk", "talk") for end in ("s", "ed", "ing"))),
    *toy.rows(300, seed=3 + SEED),
]
KINDS = ("unigram", "bpe")
by_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Of both kinds, with and without bytes, and a model of SentencePiece's own ids and settings."""
    path = tmp_path_factory.mktemp("pieces")
    made = {kind: SentencePieceEncoder.build_from_generator(LINES, 150, kind) for kind in KINDS}
    made["bytes"] = SentencePieceEncoder.build_from_generator(LINES, 1024, "bpe", ["<2de>"])
    made["theirs"] = SentencePieceEncoder(theirs(path / "theirs", unk_surface="?!"))
    return made


def theirs(prefix, **settings):
    """The file of a model that SentencePiece makes."""
    made = {"sentence_iterator": iter(LINES), "model_prefix": str(prefix), "minloglevel": 2}
    settings = {"vocab_size": 150, "hard_vocab_limit": False, **settings}
    sentencepiece.SentencePieceTrainer.train(**made, **settings)
    return f"{prefix}.model"


@pytest.mark.parametrize("name", [*KINDS, "bytes", "theirs"])
def test_any_text_and_any_ids_are_those_of_python(encoders, name):
    encoder, size = encoders[name], encoders[name].vocab_size
    ids = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, size)

    @holds(60, texts=TEXTS, rows=st.lists(st.lists(ids, max_size=20), max_size=8))
    def check(texts, rows):
        found = [encoder.encode(text) for text in texts]
        assert encoded(encoder, texts) == found
        assert all(2 <= i < size for row in found for i in row)
        assert decoded(encoder, rows + found) == [encoder.decode(row) for row in rows + found]
        if name == "bytes":  # the stand-in of a space is the one that is lost
            assert [encoder.decode(row) for row in found] == [t.replace("▁", " ") for t in texts]

    check()


def test_ids_are_those_of_the_package_with_ours_in_front(encoders):
    """SentencePiece's defaults: 0 unknown, 1 begin, 2 end of sentence, no padding."""
    encoder = encoders["theirs"]
    package = sentencepiece.SentencePieceProcessor(model_proto=encoder._model)
    for text in LINES:
        pieces = package.encode(text)
        assert encoder.encode(text) == [i + 1 if i > 2 else 2 for i in pieces]
        assert encoder.decode(encoder.encode(text)) == package.decode(pieces)
    assert encoder.vocab_size == package.vocab_size() + 1
    shown = [encoder.subtoken(i) for i in (-1, 0, 1, 2, 3, 4, encoder.vocab_size)]
    assert shown == ["", "<pad>", "<EOS>", "<unk>", "<s>", package.id_to_piece(3), ""]
    assert encoder.decode([1, 0, 2, 3]) == "?!"


def test_built_models_have_our_ids_and_lose_nothing(encoders, tmp_path):
    encoder = encoders["bytes"]
    assert [encoder.subtoken(i) for i in range(5)] == ["<pad>", "<EOS>", "<unk>", "<2de>", "<0x00>"]
    assert encoder.encode("a<2de>").count(3) == 1
    assert pickle.loads(pickle.dumps(encoder)).encode("low ⁂") == encoder.encode("low ⁂")
    encoder.store_to_file(tmp_path / "model")
    assert SentencePieceEncoder(tmp_path / "model").encode("low ⁂") == encoder.encode("low ⁂")
    long = SentencePieceEncoder.build_from_generator(["low " * 5000, "x" * 2**16], 20, "bpe")
    assert len(long.encode("low low")) == 2
    assert encoder.encode("low\ud800") == encoder.encode("low")  # a surrogate is not text
    surrogates = [f"{line}\ud800" for line in LINES]
    for kind in KINDS:
        same = SentencePieceEncoder.build_from_generator(surrogates, 150, kind)
        assert same._model == encoders[kind]._model


@by_kind
def test_a_damaged_model_is_read_or_refused(encoders, tmp_path, kind):
    """A zero byte in a piece would end the process; a random change seldom puts one there."""
    whole, piece = encoders[kind]._model, "▁a".encode()
    damaged = [whole.replace(piece, new) for new in (b"\0" * 4, b"\xff" * 4, "▁b".encode())]
    damaged += mutations(whole, random.Random(SEED))
    for number, content in enumerate(damaged):
        (tmp_path / "model").write_bytes(content)
        try:
            encoder = SentencePieceEncoder(tmp_path / "model")
        except UserError as error:
            assert re.fullmatch(".{1,2000}", str(error))
            continue
        assert number > 2
        ids = encoder.encode("low lowest 7")
        assert isinstance(encoder.decode([*ids, *range(encoder.vocab_size)]), str)


def test_a_pipeline_outlives_the_setting_of_a_seed(encoders):
    """It clears TensorFlow's eager kernels, as the trainer does between its data and its model."""
    encoder = pickle.loads(pickle.dumps(encoders["bpe"]))
    batches = tf.data.Dataset.from_tensors(LINES).repeat(2).map(encoder.encode_tensor)
    first = encoder.encode_tensor(tf.constant(LINES)).to_list()
    iterator = iter(batches)
    keras.utils.set_random_seed(3)
    assert first == next(iterator).to_list() == encoded(encoder, LINES)
    assert [rows.to_list() for rows in batches] == [first] * 2


@by_kind
def test_samples_are_the_same_text_by_the_seed(encoders, kind):
    encoder, texts = encoders[kind], [line.encode() for line in LINES]
    first, again, other = (encoder.sample(texts, 0.3, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [encoder.decode(row) for row in first] == LINES
    plain = [encoder.encode(line) for line in LINES]
    assert sum(map(len, first)) > 1.05 * sum(map(len, plain))
    if kind == "bpe":
        assert encoder.sample(texts, 0.0, 1) == plain  # no merge is left out
    found = encoder.sample_tensor(tf.constant(LINES), 0.3, tf.constant(1, tf.int64))
    assert found.to_list() == first


def test_words_begin_with_a_space(encoders):
    encoder = encoders["bytes"]
    shown = shown_tokens(encoder, [*encoder.encode("low ⁂ lowest"), 1])
    assert shown.word_texts == ["low", "⁂", "lowest", "</s>"]
    assert shown.tokens[1:5] == ["␣", "<0xE2>", "<0x81>", "<0x82>"]
    assert shown.words[:5] == [0, 1, 1, 1, 1]


# Exports


def test_a_saved_model_needs_tensorflow_text_which_we_import(encoders, tmp_path):
    server, path = Server([encoders["theirs"]]), str(tmp_path / "1")
    served = tf.function(lambda text: {k: v[0] for k, v in server.serve(text).items()})
    text = tf.TensorSpec([None], tf.string, name="text")
    tf.saved_model.save(server, path, {"serve": served.get_concrete_function(text)})
    texts = [*LINES[:5], "½ ⁂  x"]
    code = f"""
import json, sys
import tensorflow as tf
from t2t_keras.serving import SavedModel
assert "tensorflow_text" not in sys.modules
try:
    tf.saved_model.load({path!r})
except RuntimeError as error:
    message = str(error)
model = SavedModel({path!r})
out = model.predict("serve", "text", [t.encode() for t in {texts!r}])
print(json.dumps([message, out["ids"].tolist(), [t.decode() for t in out["texts"]]]))
"""
    message, ids, back = json.loads(toy.succeeded(toy.python("-c", code)).stdout)
    want = [encoders["theirs"].encode(text) for text in texts]
    assert ids == padded(want)
    assert back == [encoders["theirs"].decode(row) for row in want]
    assert "Op type not registered 'Sentencepiece" in message


def test_ctranslate2_translates_as_we_do(encoders, tmp_path, eagerly):
    pytest.importorskip("ctranslate2")
    both, size = {"inputs": encoders["theirs"], "targets": encoders["theirs"]}, 400
    overrides = "shared_embedding_and_softmax_weights=false,num_hidden_layers=1"
    model = small_model(overrides, size, size, spread=2.0, ending=1.0)
    lines = ["low lower", "Zwei Männer, 日本", "½ ⁂  x"]
    ours = Translator(model, both, DecodeSettings(beam_size=1, extra_length=3)).translate(lines)
    assert len({found.texts[0] for found in ours}) == 3
    export_ctranslate2(model, both, str(tmp_path / "fast"))
    fast = t2t.load(tmp_path / "fast").client.translate(lines, beam_size=1, extra_length=3)
    assert [best[0][0] for best in fast] == [found.texts[0] for found in ours]


# Problems and commands


class Pieces(data.Text2TextProblem):
    name = "pieces"
    is_generate_per_split = True
    vocab_type = data.VocabType.SENTENCEPIECE
    approx_vocab_size = 60

    def generate_samples(self, data_dir, tmp_dir, split):
        for row in toy.rows(200, seed=len(split)):
            yield {"inputs": row, "targets": row[::-1]}


HP = HParams(batch_size=60, max_length=30, length_bucket_step=1.5, batch_shuffle_size=3)


def test_a_problem_says_that_it_wants_pieces(tmp_path):
    paper = registry.problem("translate_ende_wmt14_bpe37k")
    assert paper.vocab_filename == "vocab.translate_ende_wmt14_bpe37k.37000.sentencepiece"
    assert paper.sentencepiece_model == "bpe"
    problem = Pieces()
    assert problem.vocab_filename == "vocab.pieces.60.sentencepiece"
    with pytest.raises(UserError, match=r"vocab.pieces.60.sentencepiece is absent: run"):
        problem.feature_encoders(tmp_path)
    problem.generate_data(tmp_path, tmp_path)
    encoder = problem.get_feature_encoders(tmp_path)["targets"]
    assert isinstance(encoder, SentencePieceEncoder)
    assert problem.get_hparams(None, tmp_path).vocab_size["inputs"] == encoder.vocab_size <= 60
    pairs = [
        (encoder.decode(source), encoder.decode(target))
        for batch in data.dataset(problem, "dev", tmp_path, HP).as_numpy_iterator()
        for source, target in zip(batch["inputs"], batch["targets"], strict=True)
    ]
    wanted = sorted((row, row[::-1]) for row in toy.rows(200, seed=3))
    assert sorted(pair for pair in pairs if pair[0]) == wanted


def test_sampled_batches_are_the_same_again_from_any_step(tmp_path):
    problem, hp = Pieces(), HP.replace(subword_sampling=0.2)

    def batches(split="train", start=0):
        found = TextBatches(problem, split, tmp_path, tmp_path, hp, seed=5)
        return list(found.dataset(start).take(30 - start).as_numpy_iterator())

    def whole(batches):
        """Whether each text has its best segmentation."""
        rows = (ids for batch in batches for ids in batch["inputs"] if ids.any())
        texts = [ids[: ids.tolist().index(1)].tolist() for ids in rows]
        return [encoder.encode(encoder.decode(ids)) == ids for ids in texts]

    first, later = batches(), batches(start=7)
    encoder = problem.get_feature_encoders(tmp_path)["inputs"]
    for one, other in zip(first[7:], later, strict=True):
        for side in ("inputs", "targets"):
            np.testing.assert_array_equal(one[side], other[side])
    for batch in first:
        pairs = zip(batch["inputs"], batch["targets"], strict=True)
        assert all(encoder.decode(a) == encoder.decode(b)[::-1] for a, b in pairs)
    assert np.mean(whole(first)) < 0.5
    assert all(whole(batches("dev")))


def test_sampling_needs_text_and_pieces(tmp_path):
    hp = registry.hparams(toy.hparams(subword_sampling=0.1))
    Pieces().generate_data(tmp_path / "data", tmp_path)
    run = str(tmp_path / "run")
    with pytest.raises(UserError, match=r"subword_sampling=0.1 needs --on_the_fly"):
        Trainer(Pieces(), hp, str(tmp_path / "data"), run, TrainSettings()).prepare()

    class Bytes(Pieces):
        name, vocab_type = "as_bytes", data.VocabType.CHARACTER

    with pytest.raises(UserError, match=r"needs a SentencePiece vocabulary, which as_bytes"):
        TextBatches(Bytes(), "train", tmp_path, tmp_path, hp)


@pytest.fixture
def files(tmp_path):
    """The files for training and for evaluation."""
    text, sides = toy.write_text(tmp_path / "text"), ("inputs", "targets")
    return [[f"{text}/{side}.{split}.txt" for side in sides] for split in ("train", "eval")]


def test_by_flags_then_training_with_samples_and_decoding_without(files, tmp_path, eagerly):
    data_dir, run = f"--data_dir={tmp_path}/data", f"--output_dir={tmp_path}/run"
    sampled = toy.hparams(num_hidden_layers=1, subword_sampling=0.1)
    training = ("--problem=translate_files", "--train_steps=2", "--eval_steps=1", "--on_the_fly")
    training += ("--decode_hparams=beam_size=1,extra_length=1",)
    training += ("--train_files=" + ",".join(files[0]), "--dev_files=" + ",".join(files[1]))
    pieces = ("--sentencepiece=bpe", "--vocab_size=40", f"--hparams={sampled}")
    done = toy.ran("train", data_dir, run, *training, *pieces, eagerly=True)
    assert "normalizer" not in done.stderr
    note = json.loads((tmp_path / "data" / "source.translate_files.json").read_text())
    assert note["vocabulary"]["from"].endswith("--vocab_size=40 --sentencepiece=bpe")
    loaded = t2t.load(tmp_path / "run", decode_hparams="beam_size=1,extra_length=1")
    assert isinstance(loaded.encoders["inputs"], SentencePieceEncoder)
    assert len(loaded.translate(["a b c"])) == 1
    problem = registry.problem("translate_files")
    problem.use_files(*files, vocab_size=40, sentencepiece="unigram")
    with pytest.raises(UserError, match=r"vocabulary in .*=40 --sentencepiece=bpe, not .*=unigram"):
        problem.generate_data(tmp_path / "data", tmp_path)


def test_a_model_from_elsewhere_is_taken(encoders, files, tmp_path):
    encoders["theirs"].store_to_file(tmp_path / "my.model")
    problem = registry.problem("translate_files")
    problem.use_files(*files, sentencepiece=str(tmp_path / "my.model"))
    problem.generate_data(tmp_path / "data", tmp_path)
    stored = tmp_path / "data" / "vocab.translate_files.sentencepiece"
    assert stored.read_bytes() == encoders["theirs"]._model
    again = registry.problem("translate_files")
    assert again.get_feature_encoders(tmp_path / "data")["inputs"].encode("low")
    again.generate_data(tmp_path / "data", tmp_path)  # all is there


# Mistakes


def broken(lines):
    yield from lines
    raise UserError("a.en, line 7: not UTF-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LINES, 9), r"of 9 tokens can be built: Vocabulary size is .* Increase vocab_size$"),
        (([], 300), r"can be built: there is no text"),
        ((broken([]), 150), r"^a.en, line 7: not UTF-8$"),
        ((broken(LINES), 150), r"^a.en, line 7: not UTF-8$"),
        ((LINES, 300, "word"), r"SentencePiece model must be one of unigram, bpe, got 'word'"),
    ],
)
def test_what_cannot_be_built_is_told_in_one_line(arguments, message):
    with pytest.raises(UserError, match=message):
        SentencePieceEncoder.build_from_generator(*arguments)


def test_mistakes_end_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "no.model").write_text("'low_'\n")
    theirs(tmp_path / "suffix", treat_whitespace_as_suffix=True)
    for name, message in (
        ("no.model", r"no.model is not a model of SentencePiece"),
        ("absent", r"Cannot read .*absent: No such file"),
        ("suffix.model", r"suffix.model puts spaces at the end of pieces"),
    ):
        with pytest.raises(UserError, match=message):
            SentencePieceEncoder(tmp_path / name)
    flags = ("--problem=translate_files", "--train_files=a,b", "--dev_files=c,d")
    done = toy.command("datagen", *flags, f"--data_dir={tmp_path}/data", "--sentencepiece=bpee")
    assert "--sentencepiece=bpee is neither unigram nor bpe nor a file" in toy.complaint(done)
    ours.import_sentencepiece.cache_clear()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match=r"pip install 't2t-keras\[sentencepiece\]'"):
        ours.import_sentencepiece()
