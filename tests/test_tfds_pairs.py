"""Pairs of TensorFlow Datasets, beside what TFDS itself reads."""

import math
import shutil

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds
from tfds_datasets import SIZES, ToyTranslate, pair, prepare

from t2t_keras.data.tfds import TfdsPairs
from t2t_keras.errors import UserError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def nothing_prepared(tmp_path, monkeypatch):
    """TFDS's own directory is empty."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "of_tfds"))


def read_by_tfds(directory, split):
    """English and German of each example, in the order of the files."""
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    builder = tfds.builder_from_directory(directory)
    examples = builder.as_dataset(split=split, read_config=config).as_numpy_iterator()
    return [(e["en"].decode().strip(), e["de"].decode().strip()) for e in examples]


SPLITS = [
    "train",
    "test",
    "train[:1%]",
    "train[60:70]",
    "train[-90:]",
    "train[10%:20%]+test+train[50%:]",
]


@pytest.mark.parametrize("split", SPLITS)
def test_pairs_are_those_of_tfds_in_the_order_of_its_files(prepared, tmp_path, split):
    assert len(list(prepared.glob("*train*"))) == 3
    dataset = TfdsPairs(str(prepared), tmp_path, ("en", "de"))
    pairs = list(dataset.pairs(split))
    assert pairs == read_by_tfds(prepared, split)
    assert len(pairs) == dataset.count(split)
    assert dataset.splits == list(SIZES)
    assert list(dataset.pairs(split)) == pairs
    if split == "train":
        assert sorted(pairs) == [pair("train", number) for number in range(200)]


def test_languages_are_those_asked_for_or_those_the_dataset_names(prepared, tmp_path):
    named = TfdsPairs(str(prepared), tmp_path)
    assert named.languages == ("de", "en")
    asked = TfdsPairs(str(prepared), tmp_path, ["en", "de"])
    assert [(b, a) for a, b in named.pairs("test")] == list(asked.pairs("test"))


@pytest.mark.parametrize("split", ["train", "train[:101]+train[150:]"])
@pytest.mark.parametrize("characters", [10**6, 19 * 28, 43])
def test_vocabulary_text_is_evenly_spaced_over_all_files(prepared, tmp_path, split, characters):
    dataset = TfdsPairs(str(prepared), tmp_path, ("en", "de"))
    pairs = list(dataset.pairs(split))
    assert {len(text) for both in pairs for text in both} == {19}
    k = math.ceil(19 * len(pairs) / characters)
    expected = [side for n in (0, 1) for side in [both[n] for both in pairs][k - 1 :: k]]
    assert list(dataset.vocabulary_text(split, characters)) == expected
    assert expected


def test_array_records_are_read_too(tmp_path):
    directory = prepare(tmp_path, file_format="array_record")
    dataset = TfdsPairs(str(directory), tmp_path, ("en", "de"))
    pairs = list(dataset.pairs("train[10:]"))
    assert len(pairs) == 190
    assert {*pairs} < {pair("train", number) for number in range(200)}
    text = list(dataset.vocabulary_text("train[10:]", 190 * 19 // 5))
    assert text == [side for n in (0, 1) for side in [both[n] for both in pairs][4::5]]


def test_a_name_is_looked_for_where_tfds_keeps_its_data(prepared, tmp_path, monkeypatch):
    data_dir = prepared.parents[1]
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    dataset = TfdsPairs("toy_translate", tmp_path)
    assert dataset.name == "toy_translate/1.2.0"
    assert dataset.count("train") == 200
    assert not (tmp_path / "tfds").exists()


def test_a_name_is_prepared_once_below_tmp_dir(nothing_prepared, tmp_path, monkeypatch):
    dataset = TfdsPairs("toy_translate", tmp_path)
    assert dataset.count("train") == 200
    assert (tmp_path / "tfds" / "toy_translate" / "1.2.0" / "dataset_info.json").exists()
    monkeypatch.setattr(ToyTranslate, "_split_generators", None)
    assert list(TfdsPairs("toy_translate:1.2.0", tmp_path).pairs("test"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy_translat", r"unknown dataset 'toy_translat': .* Did you mean 'toy_translate'\?"),
        ("wmt14_translate/en-de", "unknown config 'en-de' of wmt14_translate.*It has cs-en, de-en"),
        ("toy_translate/de", "unknown config 'de' of toy_translate. It has no configs"),
        ("toy_translate:9.0.0", "dataset 'toy_translate:9.0.0': .*only: 1.2.0"),
        ("/no/such/place", "unknown dataset '/no/such/place': neither a directory nor one of the"),
    ],
)
def test_unknown_datasets(nothing_prepared, tmp_path, name, message):
    with pytest.raises(UserError, match=message) as raised:
        TfdsPairs(name, tmp_path)
    assert "\n" not in str(raised.value)


def test_a_directory_above_a_prepared_one(prepared, tmp_path):
    with pytest.raises(UserError, match=f"holds no prepared .* Did you mean '{prepared}'"):
        TfdsPairs(str(prepared.parent), tmp_path)
    with pytest.raises(UserError, match=r"holds no prepared dataset: no dataset_info.json.$"):
        TfdsPairs(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (("en", "dee"), r"unknown language 'dee'. Did you mean 'de'\? .* has de, en."),
        (("en", "fr"), "unknown language 'fr'.* has de, en."),
        (("en", "en"), "two languages are needed, source and target, got en,en"),
        (("en",), "two languages are needed, source and target, got en:"),
    ],
)
def test_unknown_languages(prepared, tmp_path, languages, message):
    with pytest.raises(UserError, match=message):
        TfdsPairs(str(prepared), tmp_path, languages)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("trian", r"unknown split 'trian' of toy_translate/1.2.0. Did you mean 'train'\? It has"),
        ("dev", "unknown split 'dev' .* It has train, validation, test"),
        ("train[:x]", "split 'train\\[:x\\]' of .*: Error parsing"),
        ("train[:201]", "split .*: Requested slice .* incompatible with 200 examples"),
    ],
)
def test_unknown_splits(prepared, tmp_path, split, message):
    dataset = TfdsPairs(str(prepared), tmp_path)
    for use in (dataset.count, lambda split: list(dataset.pairs(split))):
        with pytest.raises(UserError, match=message) as raised:
            use(split)
        assert "\n" not in str(raised.value)


def test_files_that_are_not_whole(prepared, tmp_path):
    directory = shutil.copytree(prepared, tmp_path / "1.2.0")
    dataset = TfdsPairs(str(directory), tmp_path)
    file = sorted(directory.glob("*train*"))[1]
    records = file.read_bytes()
    file.write_bytes(records[:-5])
    with pytest.raises(UserError, match=r"toy_translate/1.2.0 cannot be read: truncated record"):
        list(dataset.pairs("train"))
    file.write_bytes(b"")
    with pytest.raises(UserError, match=r"train of .* should have 200 pairs, but has \d+: delete"):
        list(dataset.pairs("train"))
    file.unlink()
    with pytest.raises(UserError, match=f"cannot be read: .*{file.name}"):
        list(dataset.pairs("train"))


def test_no_text_at_the_top_level(tmp_path):
    class ToyNumbers(ToyTranslate):
        def _info(self):
            number = tfds.features.FeaturesDict({"number": tfds.features.Scalar(np.int64)})
            return tfds.core.DatasetInfo(builder=self, features=number)

        def _generate_examples(self, split, size):
            yield 0, {"number": 1}

    builder = ToyNumbers(data_dir=tmp_path)
    builder.download_and_prepare()
    directory = str(builder.data_dir)
    with pytest.raises(
        UserError, match=r"got none: toy_numbers/1.2.0 has no text at its top level"
    ):
        TfdsPairs(directory, tmp_path)
    with pytest.raises(UserError, match=r"unknown language 'number'. .* no text at its top level"):
        TfdsPairs(directory, tmp_path, ("number", "en"))


def test_a_download_that_fails(nothing_prepared, tmp_path, monkeypatch):
    def refuse(self, url, **options):
        raise requests.ConnectionError(f"no route to {url}")

    monkeypatch.setattr(requests.Session, "get", refuse)
    with pytest.raises(UserError) as raised:
        TfdsPairs("wmt14_translate/de-en", tmp_path)
    assert str(raised.value) == (
        "TensorFlow Datasets cannot prepare wmt14_translate/de-en: "
        "no route to http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz. "
        f"Archives fetched by hand go to {tmp_path}, whole and under their own names."
    )


def test_an_archive_that_is_another(nothing_prepared, tmp_path):
    archive = tmp_path / "training-parallel-europarl-v7.tgz"
    archive.write_bytes(b"something else")
    message = f"cannot prepare .*{archive}, has wrong checksum"
    with pytest.raises(UserError, match=message) as raised:
        TfdsPairs("wmt14_translate/de-en", tmp_path)
    assert "\n" not in str(raised.value)
