"""The paper's problems, from archives as WMT ships them through TFDS's own builder to shards."""

import gzip
import html
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from corpus_files import stored_texts, write_archive

from t2t_keras import registry
from t2t_keras.data.shards import find_shards

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


def text(lines):
    return "".join(line + "\n" for line in lines).encode()


def sgm(texts):
    """Text as in dev.tgz: among other elements, each segment on a line of its own, and escaped."""
    segments = [f'<seg id="{n}">{html.escape(line)}</seg>' for n, line in enumerate(texts, 1)]
    return text(['<srcset setid="newstest2014">', "<p>", *segments, "</p>", "</srcset>"])


def write_archives(folder, language, train, dev, test):
    """Writes WMT's archives of a language and English.

    Args:
        train: by the name of an archive, sentences as {language: [...], "en": [...]}.
        dev, test: the same of newstest2013 and of newstest2014.
    """
    folder.mkdir()
    known = ARCHIVES | FRENCH_ARCHIVES
    for name, sides in train.items():
        members = {known[name].format(language, side): text(texts) for side, texts in sides.items()}
        for member in members:
            if member.endswith(".gz"):
                members[member] = gzip.compress(members[member])
        write_archive(folder / name, members)
    members = {f"dev/newstest2013.{side}": text(dev[side]) for side in (language, "en")}
    for kind, side in (("src", language), ("ref", "en")):
        members[f"dev/newstest2014-{language}en-{kind}.{side}.sgm"] = sgm(test[side])
    write_archive(folder / "dev.tgz", members)


def numbered(language, name, count):
    """Sentences that tell where they are from."""
    return {
        side: [f"{side} {name} {number}" for number in range(count)] for side in (language, "en")
    }


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
        builder = tfds.builder_cls("wmt14_translate")
        monkeypatch.setattr(builder, "url_infos", infos)

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
    for split, pairs in (
        ("train", expected),
        ("dev", english_first(dev, language)),
        ("test", english_first(test, language)),
    ):
        assert stored_texts(problem, split, data_dir) == sorted(pairs)
        shards = find_shards(data_dir, problem.name, split)
        assert len(shards) == (100 if split == "train" else 1)


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
