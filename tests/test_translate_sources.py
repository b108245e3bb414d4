"""Translation problems from archives laid out as they are shipped, to sentence pairs and shards."""

import gzip
from pathlib import Path

import pytest
from corpus_files import stored_texts as stored, write_archive as write_tar

from t2t_keras import registry
from t2t_keras.cli.datagen import describe
from t2t_keras.data import TranslateProblem, sources
from t2t_keras.data.sources import local_sources, read_sources
from t2t_keras.errors import UserError

CODES = {
    "de": "Zeile", "fr": "ligne", "cs": "řádek", "zh": "行", "ro": "rând", "es": "línea", "ru": "строка"
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Files in tmp_dir are used: any request is an error."""

    def refuse(request, **kwargs):
        url = request if isinstance(request, str) else request.full_url
        assert url.startswith("file:"), f"{url} was asked for"
        return urlopen(request, **kwargs)

    urlopen = sources.urllib.request.urlopen
    monkeypatch.setattr(sources.urllib.request, "urlopen", refuse)


def lines(name, language, count=8):
    """Text that tells where it comes from: line N of each language translates line N."""
    word = CODES.get(language, "line")
    return [f"{word} {number} {name}." for number in range(count)]


def text(rows):
    return "".join(row + "\n" for row in rows).encode()


def both(stem, language, name, count=8):
    """The members `stem.en` and `stem.language` of an archive."""
    return {f"{stem}.{code}": text(lines(name, code, count)) for code in ("en", language)}


def wmt_archives(tmp_dir, language):
    """A small version of WMT's archives for a language pair, with another pair beside it."""
    tmp_dir.mkdir(exist_ok=True)
    pair, other = f"{language}-en", "it-en"
    nc13, nc9 = "training-parallel-nc-v13/news-commentary-v13.", "training/news-commentary-v9."
    europarl, giga = "training/europarl-v7.", "giga-fren.release2.fixed."
    archives = {
        "training-parallel-nc-v13.tgz": both(nc13 + pair, language, "nc13")
        | both(nc13 + other, "it", "other"),
        "training-parallel-nc-v9.tgz": both(nc9 + other, "it", "other")
        | both(nc9 + pair, language, "nc9"),
        "training-parallel-commoncrawl.tgz": both(f"commoncrawl.{pair}", language, "crawl")
        | {f"commoncrawl.{pair}.annotation": b"line 0 http://example.com\n"},
        "training-parallel-europarl-v7.tgz": both(europarl + other, "it", "other")
        | both(europarl + pair, language, "europarl"),
        "training-giga-fren.tar": {
            f"{giga}{code}.gz": gzip.compress(text(lines("giga", code)))
            for code in ("en", language)
        },
        "training-parallel-un.tgz": both(f"un/undoc.2000.{pair}", language, "un"),
        "dev.tgz": both("dev/newstest2013", language, "dev", 3)
        | {"dev/newstest2012.en": text(lines("other", "en"))},
    }
    for name, members in archives.items():
        write_tar(tmp_dir / name, members)


def samples(problem, tmp_dir, split):
    return [
        (sample["inputs"], sample["targets"])
        for sample in problem.generate_samples("", tmp_dir, split)
    ]


def expected(language, *names, count=8):
    return [
        pair
        for name in names
        for pair in zip(lines(name, "en", count), lines(name, language, count), strict=True)
    ]


# English to German and French


@pytest.mark.parametrize(
    ("language", "name", "corpora"),
    [
        ("de", "translate_ende_wmt32k", ["nc13", "crawl", "europarl"]),
        ("fr", "translate_enfr_wmt32k", ["crawl", "europarl", "nc9", "giga", "un"]),
    ],
)
def test_german_and_french(tmp_path, language, name, corpora):
    wmt_archives(tmp_path, language)
    problem = registry.problem(name)
    assert samples(problem, tmp_path, "train") == expected(language, *corpora)
    assert samples(problem, tmp_path, "dev") == expected(language, "dev", count=3)
    unpacked = [path for path in tmp_path.rglob("*.*") if path.suffix not in (".tgz", ".tar")]
    assert len(unpacked) == 2 * len([*corpora, "dev"])
    assert not any("it-en" in path.name for path in unpacked)


def test_what_gunzip_left_is_used(tmp_path):
    wmt_archives(tmp_path, "fr")
    (tmp_path / "training-giga-fren.tar").unlink()
    for code in ("en", "fr"):
        (tmp_path / f"giga-fren.release2.fixed.{code}").write_bytes(text(lines("mine", code)))
    problem = registry.problem("translate_enfr_wmt8k")
    assert set(expected("fr", "mine")) < set(samples(problem, tmp_path, "train"))


# The other forms


def czeng(tmp_dir):
    """CzEng's columns: name, score, Czech, English."""
    members = {"data.plaintext-format/99etest.gz": gzip.compress(b"a\tb\tc\td\n")}
    for part in (1, 0):
        pairs = enumerate(expected("cs", f"czeng{part}"))
        rows = [f"czeng-{part}-{row}\t0.9\t{czech}\t{english}" for row, (english, czech) in pairs]
        members[f"data.plaintext-format/{part:02d}train.gz"] = gzip.compress(text(rows))
    write_tar(tmp_dir / "data-plaintext-format.tar", members)


def test_czech_has_tables(tmp_path, monkeypatch):
    wmt_archives(tmp_path, "cs")
    czeng(tmp_path)
    problem = registry.problem("translate_encs_wmt_characters")
    names = ("czeng0", "czeng1", "nc13", "crawl", "europarl")
    assert samples(problem, tmp_path, "train") == expected("cs", *names)
    assert not (tmp_path / "data.plaintext-format" / "99etest.gz").exists()
    # A table that is absent is taken from the archive again.
    (tmp_path / "data.plaintext-format" / "00train.gz").unlink()  # as if stopped between the two
    monkeypatch.setattr(sources, "_read_through", set())  # a new process
    assert samples(problem, tmp_path, "train") == expected("cs", *names)


def by_the_rule_of_t2t(rows, budget):
    """Lines of a file for the vocabulary (T2T's `generate_lines_for_vocab`)."""
    skip, skipped, taken = int(len(text(rows)) / budget / 2), 0, []
    for row in rows:
        if skipped < skip:
            skipped += 1
        elif budget > 0:
            budget -= len(row)
            skipped = 0
            taken.append(row)
    return taken


def test_czech_vocabulary_reads_all_text_and_each_file(tmp_path, monkeypatch):
    """T2T samples the concatenation of all pairs, and then each file that is not a table."""
    wmt_archives(tmp_path, "cs")
    czeng(tmp_path)
    problem = registry.problem("translate_encs_wmt32k")
    monkeypatch.setattr(type(problem), "vocab_file_budget", 60)
    wanted = []
    everything = expected("cs", "czeng0", "czeng1", "nc13", "crawl", "europarl")
    for pairs in (everything, *(expected("cs", name) for name in ("nc13", "crawl", "europarl"))):
        for side in (0, 1):
            wanted += by_the_rule_of_t2t([pair[side] for pair in pairs], 60)
    assert list(problem.generate_text_for_vocab("", tmp_path)) == wanted
    assert len(wanted) < 60
    assert not problem.dropped


def sgm(rows, kind):
    segments = [f'<seg id="{number}">{row}</seg>' for number, row in enumerate(rows, 1)]
    return text([f'<{kind} setid="newsdev">', "<p>", *segments, "</p>", f"</{kind}>"])


def test_romanian_has_a_zip_archive_and_sgm_files(tmp_path):
    write_tar(tmp_path / "ro-en.tgz", both("europarl-v7.ro-en", "ro", "europarl"))
    setimes = both("SETIMES.en-ro", "ro", "setimes") | {"README": b"not wanted"}
    write_tar(tmp_path / "en-ro.txt.zip", setimes)
    dev = {
        "dev/newsdev2016-roen-ref.en.sgm": sgm(lines("dev", "en"), "refset"),
        "dev/newsdev2016-roen-src.ro.sgm": sgm(lines("dev", "ro"), "srcset"),
    }
    write_tar(tmp_path / "dev-romanian-updated.tgz", dev)
    problem = registry.problem("translate_enro_wmt8k")
    assert samples(problem, tmp_path, "train") == expected("ro", "europarl", "setimes")
    assert samples(problem, tmp_path, "dev") == expected("ro", "dev")
    assert not (tmp_path / "README").exists()


@pytest.mark.parametrize("query", ["", "?raw=true"])
def test_an_archive_may_have_the_query_in_its_name_as_in_t2t(tmp_path, query):
    write_tar(tmp_path / "eng_tswane.dev.tar.gz", both("entn_parallel.dev", "tn", "dev"))
    (tmp_path / "eng_tswane.dev.tar.gz").rename(tmp_path / f"eng_tswane.dev.tar.gz{query}")
    assert len(samples(registry.problem("translate_entn_rma"), tmp_path, "dev")) == 8


def test_paracrawl_is_one_file(tmp_path):
    units = "".join(
        f"  <tu>\n   <tuv xml:lang='en'>\n    <seg>{a}</seg>\n   </tuv>\n"
        f"   <tuv xml:lang='de'>\n    <seg>{b}</seg>\n   </tuv>\n  </tu>\n"
        for a, b in expected("de", "paracrawl")
    )
    (tmp_path / "en-de.bicleaner07.tmx.gz").write_bytes(gzip.compress(units.encode()))
    problem = registry.problem("translate_ende_pc32k")
    assert samples(problem, tmp_path, "train") == expected("de", "paracrawl")


def chinese_archives(tmp_dir, cwmt=False):
    stem = "training-parallel-nc-v13/news-commentary-v13.zh-en"
    write_tar(tmp_dir / "training-parallel-nc-v13.tgz", both(stem, "zh", "nc13"))
    dev = {
        "dev/newsdev2017-enzh-src.en.sgm": sgm(lines("dev", "en", 3), "srcset"),
        "dev/newsdev2017-enzh-ref.zh.sgm": sgm(lines("dev", "zh", 3), "refset"),
    }
    write_tar(tmp_dir / "dev.tgz", dev)
    if cwmt:
        sources = registry.problem("translate_enzh_wmt32k").source_data_files("train")
        names = [name for url, names in sources if url == "cwmt.tgz" for name in names]
        members = {}
        for number, name in enumerate(names):
            code = "en" if name.endswith("_en.txt") else "zh"
            members[name] = text(lines(f"cwmt{number // 2}", code, 1))
        write_tar(tmp_dir / "cwmt.tgz", members)


def test_chinese_has_two_vocabularies(tmp_path):
    tmp_dir, data_dir = tmp_path / "tmp", tmp_path / "data"
    tmp_dir.mkdir()
    chinese_archives(tmp_dir)
    problem = registry.problem("translate_enzh_wmt8k")
    with pytest.raises(UserError, match=r"8192\.subwords\.en is absent: run t2t-keras-datagen"):
        problem.feature_encoders(data_dir)
    problem.generate_data(data_dir, tmp_dir)
    name = "vocab.translate_enzh_wmt8k.8192.subwords"
    assert sorted(path.name for path in data_dir.glob("vocab*")) == [f"{name}.en", f"{name}.zh"]
    described = [line.split()[-1] for line in describe(problem, data_dir)[:2]]
    assert described == [f"{name}.en", f"{name}.zh"]
    encoders = problem.get_feature_encoders(data_dir)
    assert "行" in "".join(encoders["targets"].all_subtoken_strings)
    assert "行" not in "".join(encoders["inputs"].all_subtoken_strings)
    pairs = expected("zh", "dev", count=3)
    assert stored(problem, "dev", data_dir) == sorted(pairs)
    turned = registry.problem("translate_enzh_wmt8k_rev")
    assert stored(turned, "dev", data_dir) == sorted(pair[::-1] for pair in pairs)


def test_chinese_corpora_that_are_asked_for_are_used_when_they_are_there(tmp_path, capsys):
    chinese_archives(tmp_path, cwmt=True)
    problem = registry.problem("translate_enzh_wmt32k")
    names = [f"cwmt{number}" for number in range(24)]
    pairs = expected("zh", "nc13") + expected("zh", *names, count=1)
    assert samples(problem, tmp_path, "train") == pairs
    samples(problem, tmp_path, "train")
    message = f"translate_enzh_wmt32k: without UNv1.0.en-zh.tar.gz, which is not in {tmp_path}\n"
    assert capsys.readouterr().err == message


# Fetching


class Toy(TranslateProblem):
    """One archive of two files."""

    url = ""
    names = ("in/a.en", "in/a.de")

    def source_data_files(self, split):
        return [[self.url, self.names]]


def test_an_archive_is_fetched_once_and_only_if_its_files_are_absent(tmp_path, monkeypatch):
    tmp_dir, toy = tmp_path / "tmp", write_tar(tmp_path / "toy.tgz", both("in/a", "de", "toy"))
    monkeypatch.setattr(Toy, "url", toy.as_uri())
    fetched, original = [], sources.fetch

    def fetch(url, path):
        fetched.append(url)
        return original(url, path)

    monkeypatch.setattr(sources, "fetch", fetch)
    assert samples(Toy(), tmp_dir, "train") == expected("de", "toy")
    (tmp_dir / "toy.tgz").unlink()
    assert samples(Toy(), tmp_dir, "train") == expected("de", "toy")
    assert fetched == [Toy.url]


@pytest.mark.parametrize(
    ("url", "content", "message"),
    [
        ("", None, "The source file {}/in/a.en is absent: place it there, or see --tmp_dir."),
        (
            "toy.tgz",
            None,
            "The source file {0}/in/a.en is absent, and so is {0}/toy.tgz, which would hold it: "
            "place one of them there, or see --tmp_dir.",
        ),
        (
            "toy.tgz",
            {"in/a.en": b"one\n"},
            "{0}/toy.tgz does not hold in/a.de: place the right archive there (it comes from "
            "toy.tgz), or the file itself as {0}/in/a.de.",
        ),
        ("toy.tgz", b"<html>Please log in</html>", "{}/toy.tgz does not hold in/a.en: place "),
        ("toy.tgz", gzip.compress(b"text")[:15], "{}/toy.tgz cannot be read to its end ("),
    ],
)
def test_files_that_cannot_be_had(tmp_path, monkeypatch, url, content, message):
    if isinstance(content, dict):
        write_tar(tmp_path / "toy.tgz", content)
    elif content:
        (tmp_path / "toy.tgz").write_bytes(content)
    monkeypatch.setattr(Toy, "url", url)
    with pytest.raises(UserError) as raised:
        samples(Toy(), tmp_path, "train")
    assert str(raised.value).startswith(message.format(tmp_path))
    assert (tmp_path / "in" / "a.en").exists() == isinstance(content, dict)


def test_sources_that_are_none(tmp_path):
    names = [("a.en",), ("tsv", 1, "*"), ("tsv", "1", "2", "*"), ("a.en", "a.de", "a.fr")]
    for source in ("a.en", *(["", part] for part in names)):
        with pytest.raises(UserError, match=r"is not a source: give \[url, \(source file, "):
            local_sources(tmp_path, [source])


def test_all_files_are_checked_before_the_first_pair(tmp_path):
    for name, content in {"a": "1\n", "b": "1\n", "c": "1\n2\n", "d": "1\n"}.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=r"c has 2 lines and .*d has 1"):
        next(read_sources(tmp_path, [["", ("a", "b")], ["", ("c", "d")]], {}))


def test_cleaning_as_in_t2t_is_refused(tmp_path):
    class Clean(Toy):
        datatypes_to_clean = ["txt"]

    with pytest.raises(
        UserError, match=r"asks for T2T's cleaning of \['txt'\], which is not supported"
    ):
        samples(Clean(), tmp_path, "train")


def test_a_table_can_be_the_file_that_is_fetched(tmp_path):
    (tmp_path / "remote").mkdir()
    table = tmp_path / "remote" / "titles.tsv.gz"
    table.write_bytes(gzip.compress(b"cat\tKatze\ndog\tHund\n"))
    source = [table.as_uri(), ("tsv", 0, 1, "titles.tsv.gz")]
    found = list(read_sources(tmp_path / "tmp", [source], {}))
    assert found == [("cat", "Katze"), ("dog", "Hund")]


# The page


def test_the_new_language_pair_of_the_page_works(tmp_path, monkeypatch):
    """Its very code, as a user's directory."""
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    section = page.split("## A new language pair\n")[1]
    code = section.split("```python\n")[1].split("```")[0]
    folder, tmp_dir = tmp_path / "usr_dir_of_the_page", tmp_path / "tmp"
    folder.mkdir()
    (folder / "__init__.py").write_text(code)
    monkeypatch.setattr(registry, "_problems", dict(registry._problems))
    registry.import_user_directory(str(folder))
    wmt_archives(tmp_dir, "ru")
    problem = registry.problem("translate_enru_wmt32k")
    assert samples(problem, tmp_dir, "train") == expected("ru", "nc9", "crawl")
    assert samples(problem, tmp_dir, "dev") == expected("ru", "dev", count=3)
    problem.generate_data(tmp_path / "data", tmp_dir)
    turned = registry.problem("translate_enru_wmt32k_rev")
    pairs = expected("ru", "dev", count=3)
    assert stored(turned, "dev", tmp_path / "data") == sorted(pair[::-1] for pair in pairs)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
