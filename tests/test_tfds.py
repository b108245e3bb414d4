"""Pairs of TensorFlow Datasets beside what TFDS reads, and the paper's data as WMT ships them."""

import gzip
import html
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds
from corpus_files import as_text, stored_texts, write_archive
from tfds_datasets import SIZES, ToyTranslate, pair, prepare

from t2t_keras import registry
from t2t_keras.data.shards import find_shards
from t2t_keras.data.tfds import USUAL_SPLITS, TfdsSource
from t2t_keras.errors import UserError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def nothing_prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "of_tfds"))


def opened(name, tmp_path, part="train", languages=("en", "de")):
    """A dataset whose part is its training data."""
    return TfdsSource(str(name), tmp_path, languages, {"train": part})


def refused(message, *arguments, **options):
    with pytest.raises(UserError, match=message) as raised:
        opened(*arguments, **options)
    assert "\n" not in str(raised.value)


def read_by_tfds(directory, part):
    """English and German of each example, in the order of the files."""
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    builder = tfds.builder_from_directory(directory)
    examples = builder.as_dataset(split=part, read_config=config).as_numpy_iterator()
    return [(e["en"].decode().strip(), e["de"].decode().strip()) for e in examples]


PARTS = ["test", "train[:1%]", "train[60:70]", "train[-90:]", "train[10%:20%]+test+train[50%:]"]


@pytest.mark.parametrize("part", ["train", *PARTS])
def test_pairs_are_those_of_tfds_in_the_order_of_its_files(prepared, tmp_path, part):
    assert len(list(prepared.glob("*train*"))) == 3
    dataset = opened(prepared, tmp_path, part)
    pairs = list(dataset.pairs("train"))
    assert pairs == read_by_tfds(prepared, part)
    assert len(pairs) == dataset.count("train")
    assert list(dataset.pairs("train")) == pairs
    if part == "train":
        assert sorted(pairs) == [pair("train", number) for number in range(200)]


def test_languages_and_splits_are_asked_for_or_the_dataset_s(prepared, tmp_path, monkeypatch):
    named = TfdsSource(str(prepared), tmp_path)
    assert named.languages == ("de", "en")
    assert [(split, named.count(split)) for split in named.splits] == list(
        zip(("train", "dev", "test"), SIZES.values(), strict=True)
    )
    asked = opened(prepared, tmp_path, "test")
    assert [(b, a) for a, b in named.pairs("test")] == list(asked.pairs("train"))
    monkeypatch.setitem(USUAL_SPLITS, "test", "absent")
    assert TfdsSource(str(prepared), tmp_path).splits == ["train", "dev"]


@pytest.mark.parametrize("part", ["train", "train[:101]+train[150:]"])
@pytest.mark.parametrize("characters", [10**6, 19 * 28, 43])
def test_vocabulary_text_is_evenly_spaced_over_all_files(prepared, tmp_path, part, characters):
    dataset = opened(prepared, tmp_path, part)
    pairs = list(dataset.pairs("train"))
    assert {len(text) for both in pairs for text in both} == {19}
    k = math.ceil(19 * len(pairs) / characters)
    expected = [side for n in (0, 1) for side in [both[n] for both in pairs][k - 1 :: k]]
    assert list(dataset.vocabulary_text("train", characters)) == expected
    assert expected


def test_array_records_are_read_too(tmp_path):
    dataset = opened(prepare(tmp_path, file_format="array_record"), tmp_path, "train[10:]")
    pairs = list(dataset.pairs("train"))
    assert len(pairs) == 190
    assert {*pairs} < {pair("train", number) for number in range(200)}
    text = list(dataset.vocabulary_text("train", 190 * 19 // 5))
    assert text == [side for n in (0, 1) for side in [both[n] for both in pairs][4::5]]


def test_a_name_is_looked_for_where_tfds_keeps_its_data(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared.parents[1]))
    dataset = opened("toy_translate", tmp_path)
    assert dataset.name == "toy_translate/1.2.0"
    assert dataset.count("train") == 200
    assert not (tmp_path / "tfds").exists()


def test_a_name_is_prepared_once_below_tmp_dir(nothing_prepared, tmp_path, monkeypatch):
    assert opened("toy_translate", tmp_path).count("train") == 200
    assert (tmp_path / "tfds" / "toy_translate" / "1.2.0" / "dataset_info.json").exists()
    monkeypatch.setattr(ToyTranslate, "_split_generators", None)
    assert list(opened("toy_translate:1.2.0", tmp_path, "test").pairs("train"))


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
    refused(message, name, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": ("en", "dee")}, r"no language 'dee'. Did you mean 'de'\? .* has de, en."),
        ({"languages": ("en", "fr")}, "no language 'fr'.* has de, en."),
        ({"languages": ("en", "en")}, "two languages are needed, source and target, got en,en"),
        ({"languages": ("en",)}, "two languages are needed, source and target, got en:"),
        ({"part": "trian"}, r"unknown split 'trian' of toy_translate/1.2.0. Did you mean 'train'\? It has"),
        ({"part": "dev"}, "unknown split 'dev' .* It has train, validation, test"),
        ({"part": "train[:x]"}, "split 'train\\[:x\\]' of .*: Error parsing"),
        ({"part": "train[:201]"}, "split .*: Requested slice .* incompatible with 200 examples"),
    ],
)  # fmt: skip
def test_unknown_languages_and_splits(prepared, tmp_path, options, message):
    refused(message, prepared, tmp_path, **options)


def test_a_directory_above_a_prepared_one(prepared, tmp_path):
    refused(f"holds no prepared .* Did you mean '{prepared}'", prepared.parent, tmp_path)
    refused(r"holds no prepared dataset: no dataset_info.json.$", tmp_path, tmp_path)


def test_files_that_are_not_whole(prepared, tmp_path):
    directory = shutil.copytree(prepared, tmp_path / "1.2.0")
    dataset = opened(directory, tmp_path)
    file = sorted(directory.glob("*train*"))[1]
    for damage, message in (
        (lambda: file.write_bytes(file.read_bytes()[:-5]), r"1.2.0 cannot be read: truncated record"),
        (lambda: file.write_bytes(b""), r"train of .* should have 200 pairs, but has \d+: delete"),
        (lambda: file.unlink(), f"cannot be read: .*{file.name}"),
    ):  # fmt: skip
        damage()
        with pytest.raises(UserError, match=message):
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
    for languages, message in (
        (None, r"got none: toy_numbers/1.2.0 has no text at its top level"),
        (("number", "en"), r"no language 'number'. .* no text at its top level"),
    ):
        refused(message, builder.data_dir, tmp_path, languages=languages)


def test_downloads_that_fail_and_an_archive_that_is_another(
    nothing_prepared, tmp_path, monkeypatch, capfd
):
    def refuse(self, url, **options):
        raise requests.ConnectionError(f"no route to {url}")

    with monkeypatch.context() as patch, pytest.raises(UserError) as raised:
        patch.setattr(requests.Session, "get", refuse)
        opened("wmt14_translate/de-en", tmp_path)
    assert str(raised.value) == (
        "TensorFlow Datasets cannot prepare wmt14_translate/de-en "
        "(no route to http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz): "
        f"archives fetched by hand go to {tmp_path}, whole and under their own names."
    )
    there = tmp_path / "tfds/wmt14_translate/de-en/1.0.0"
    line = f"wmt14_translate/de-en: TFDS downloads and prepares it in {there}\n"
    assert capfd.readouterr() == ("", line)
    archive = tmp_path / "training-parallel-europarl-v7.tgz"
    archive.write_bytes(b"something else")
    refused(f"cannot prepare .*{archive}, has wrong checksum", "wmt14_translate/de-en", tmp_path)


# The paper's problems, from archives as WMT ships them through TFDS's own builder to shards

NEWSTEST = Path(__file__).parents[2] / "shared/data/newstest"

ARCHIVES = {
    "training-parallel-europarl-v7.tgz": "training/europarl-v7.{0}-en.{1}",
    "training-parallel-commoncrawl.tgz": "commoncrawl.{0}-en.{1}",
    "training-parallel-nc-v9.tgz": "training/news-commentary-v9.{0}-en.{1}",
}
FRENCH_ARCHIVES = {
    "training-parallel-un.tgz": "un/undoc.2000.{0}-en.{1}",
    "training-giga-fren.tar": "giga-fren.release2.fixed.{1}.gz",
}


def sgm(texts):
    """Text as in dev.tgz: among other elements, each segment on a line of its own, and escaped."""
    segments = [f'<seg id="{n}">{html.escape(line)}</seg>' for n, line in enumerate(texts, 1)]
    return as_text(['<srcset setid="newstest2014">', "<p>", *segments, "</p>", "</srcset>"])


def write_archives(folder, language, train, dev, test):
    """Writes WMT's archives of a language and English.

    Args:
        train: by the name of an archive, sentences as {language: [...], "en": [...]}.
        dev, test: the same of newstest2013 and of newstest2014.
    """
    folder.mkdir()
    known = ARCHIVES | FRENCH_ARCHIVES
    for name, sides in train.items():
        path = known[name]
        members = {path.format(language, side): as_text(texts) for side, texts in sides.items()}
        for member in members:
            if member.endswith(".gz"):
                members[member] = gzip.compress(members[member])
        write_archive(folder / name, members)
    members = {f"dev/newstest2013.{side}": as_text(dev[side]) for side in (language, "en")}
    for kind, side in (("src", language), ("ref", "en")):
        members[f"dev/newstest2014-{language}en-{kind}.{side}.sgm"] = sgm(test[side])
    write_archive(folder / "dev.tgz", members)


def numbered(language, name, count):
    sides = (language, "en")
    return {side: [f"{side} {name} {number}" for number in range(count)] for side in sides}


@pytest.fixture
def accept(monkeypatch, tmp_path):
    """Makes TFDS expect the archives that lie in a folder instead of the real ones."""
    checksums = tfds.download.checksums
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "of_tfds"))

    def accept(folder):
        infos = {
            url: checksums.compute_url_info(folder / info.filename)
            for url, info in checksums.get_all_url_infos().items()
            if info.filename and (folder / info.filename).exists()
        }
        assert len(infos) == len(list(folder.iterdir()))
        monkeypatch.setattr(tfds.builder_cls("wmt14_translate"), "url_infos", infos)

    return accept


def english_first(sides, language):
    return list(zip(sides["en"], sides[language], strict=True))


@pytest.mark.parametrize(
    ("alias", "language", "archives", "size"),
    [
        ("translate_ende", "de", ARCHIVES, 37000),
        ("translate_enfr", "fr", ARCHIVES | FRENCH_ARCHIVES, 32000),
    ],
)
def test_archives_become_shards(accept, tmp_path, alias, language, archives, size):
    train = {name: numbered(language, name.split(".")[0], 30) for name in archives}
    first = next(iter(train.values()))
    first["en"][3] = ""
    first["en"][4] = "text as it is: Q&amp;A"
    dev, test = numbered(language, "newstest2013", 7), numbered(language, "newstest2014", 5)
    dev["en"][2] = "&quot; in plain text"
    test["en"][1], test[language][1] = 'R&D < "P&L"', "&amp; is how to write &"
    folder = tmp_path / "raw"
    write_archives(folder, language, train, dev, test)
    accept(folder)

    problem = registry.problem(alias)
    data_dir = tmp_path / "data"
    problem.generate_data(data_dir, folder)

    assert problem.name == f"{alias}_wmt14"  # which commands print and record
    assert registry.problem(f"{alias}_rev").name == f"{alias}_wmt14_rev"
    assert (data_dir / f"vocab.{alias}_wmt14.{size}.subwords").exists()
    expected = [pair for sides in train.values() for pair in english_first(sides, language)]
    expected = sorted(pair for pair in expected if all(pair))
    assert len(expected) == 30 * len(archives) - 1
    dev, test = (english_first(sides, language) for sides in (dev, test))
    for split, pairs in (("train", expected), ("dev", dev), ("test", test)):
        assert stored_texts(problem, split, data_dir) == sorted(pairs)
        assert len(find_shards(data_dir, problem.name, split)) == (100 if split == "train" else 1)


@pytest.mark.skipif(not NEWSTEST.exists(), reason="needs the newstest files in ../shared")
def test_real_text_through_the_same_path(accept, tmp_path):
    def sides(name, first, last):
        return {
            side: (NEWSTEST / f"{name}.{side}").read_text("utf-8").split("\n")[first:last]
            for side in ("de", "en")
        }

    train = {name: sides("newstest2012", n * 100, n * 100 + 100) for n, name in enumerate(ARCHIVES)}
    dev, test = sides("newstest2013", 0, 50), sides("newstest2014-deen", 0, 50)
    folder = tmp_path / "raw"
    write_archives(folder, "de", train, dev, test)
    accept(folder)

    problem = registry.problem("translate_ende_rev")
    problem.generate_data(tmp_path / "data", folder)

    for split, parts in (("train", train.values()), ("dev", [dev]), ("test", [test])):
        pairs = [pair for part in parts for pair in english_first(part, "de")]
        pairs = sorted((german.strip(), english.strip()) for english, german in pairs)
        assert stored_texts(problem, split, tmp_path / "data") == pairs
