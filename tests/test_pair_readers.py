"""Files of sentence pairs: every form, every way to be wrong, and in little memory."""

import gzip
import tracemalloc
from collections import Counter

import pytest

from t2t_keras.data import sources
from t2t_keras.data.sources import LocalSource, read_pairs, read_sources, text_size
from t2t_keras.errors import UserError


def write(path, content):
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture(params=["", ".gz"])
def suffix(request):
    return request.param


# Sizes


@pytest.mark.parametrize("block", [1, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", 0),
        ("\n", 1),
        ("a", 1),
        ("a\nb\n", 2),
        ("a\n\nb", 3),
        ("a\u2028b\x0cc\rd\n", 1),
        ("größe 😀\nẞ\n", 2),
        (("x" * 999 + "\n") * 3, 3),
    ],
)
def test_sizes(tmp_path, suffix, monkeypatch, content, lines, block):
    monkeypatch.setattr(sources, "_BLOCK", block)
    monkeypatch.setattr(sources, "LINE_BYTES", 1000)
    assert text_size(write(tmp_path / f"a{suffix}", content)) == (lines, len(content.encode()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("größe\nwörter\n".encode() + b"zw\xc3\nvier\n", ", line 3: not UTF-8 .*0xc3 at column 3"),
        (b"eins\nzwei\xc3", ", line 2: not UTF-8"),
        ("x\n" + "x" * 1200, ", line 2: longer than"),
        (None, "not a whole gzip file|No such file"),
    ],
)
def test_files_that_are_no_text(tmp_path, suffix, monkeypatch, content, message):
    monkeypatch.setattr(sources, "LINE_BYTES", 1000)
    path = tmp_path / f"a{suffix}"
    if content is not None:
        write(path, content)
    elif suffix:
        path.write_bytes(gzip.compress(b"text" * 100)[:-9])
    for block in (1, 3, 7, 1 << 20):
        monkeypatch.setattr(sources, "_BLOCK", block)
        with pytest.raises(UserError, match=message):
            text_size(path)


def test_a_byte_order_mark_is_no_text(tmp_path, suffix):
    first = write(tmp_path / f"a{suffix}", "\ufeffeins\nzwei\n")
    second = write(tmp_path / f"b{suffix}", "\ufeffone\ntwo\n")
    assert text_size(first) == (2, 10)
    assert list(read_pairs(first, second)) == [("eins", "one"), ("zwei", "two")]
    assert text_size(write(tmp_path / f"c{suffix}", "\ufeff")) == (0, 0)


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path):
    path = write(tmp_path / "a", "one\n")
    before = sources._text_size.cache_info().misses
    assert [text_size(path).lines for _ in "123"] == [1, 1, 1]
    assert sources._text_size.cache_info().misses == before + 1
    write(path, "one\ntwo\n")
    assert text_size(path).lines == 2


# Pairs

SOURCE_SGM = """<srcset setid="newstest" srclang="any">
<doc sysid="ref" docid="a" genre="news" origlang="en"><hl>
<seg id="1"> Profit &amp; loss </seg>
</hl><p>
<seg id="2">A cat.</seg>
<seg id="3">Unfinished
</seg>
</p></doc></srcset>
"""
TARGET_SGM = """<refset setid="newstest" srclang="any" trglang="de">
<seg id="1">Gewinn &lt; Verlust</seg>
  <seg id="2"></seg>
<seg id="3">Drei.</seg>
</refset>
"""
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><body>
  <tu tuid="1" datatype="Text">
   <prop type="score">0.9</prop>
   <tuv xml:lang="en">
    <seg>Tom &amp; Jerry &lt;3 &quot;cheese&quot;</seg>
   </tuv>
   <tuv xml:lang="de">
    <seg> Tom &amp;amp; Jerry &amp;lt; 3 & quot;Käse& apos; </seg>
   </tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>one</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv></tu>
  <tu>
   <tuv xml:lang="en"><seg>alone</seg></tuv>
  </tu>
  <tu>
   <tuv xml:lang="en"><seg>two</seg></tuv>
   <tuv xml:lang="de"><seg></seg></tuv>
  </tu>
</body></tmx>
"""


@pytest.mark.parametrize(
    ("kind", "contents", "pairs"),
    [
        (
            "text",
            [" one \r\n\ntwo\u2028lines\rhere\n\u00a0four", "\teins\nzwei\ndrei\nvier\n"],
            [("one", "eins"), ("", "zwei"), ("two\u2028lines\rhere", "drei"), ("four", "vier")],
        ),
        (  # T2T's `_preprocess_sgm` leaves entities alone, and a segment that goes on is nothing
            "sgm",
            [SOURCE_SGM, TARGET_SGM],
            [("Profit &amp; loss", "Gewinn &lt; Verlust"), ("A cat.", ""), ("", "Drei.")],
        ),
        (  # entities as in T2T's `_raw_sentences`: "&" first, so that some are replaced twice
            "tmx",
            [TMX],
            [
                ('Tom & Jerry <3 "cheese"', "Tom & Jerry < 3 \"Käse'"),
                *(("one", "eins"), None, ("two", "")),
            ],
        ),
        (
            "tsv",
            ['x\ty\teins\t one \nno tab\nx\ty\tz\nx\ty\t\tquo"te\n'],
            [("one", "eins"), None, None, ('quo"te', "")],
        ),
    ],
)
def test_pairs(tmp_path, suffix, kind, contents, pairs):
    paths = [write(tmp_path / f"{n}{suffix}", content) for n, content in enumerate(contents)]
    assert list(LocalSource(kind, paths, (3, 2)).pairs()) == pairs


@pytest.mark.parametrize(
    ("kind", "contents", "message"),
    [
        ("text", ("1\n2\n", "1\n2\n3"), "0 has 2 lines and .*1 has 3: "),
        ("text", ("1\n2\n", ""), "1 is empty"),
        ("sgm", (SOURCE_SGM, '<seg id="1">eins</seg>\n'), "0 has 3 segments and .*1 has 1: "),
        ("sgm", ("one\n", "one\n"), "0 has 0 segments and .*1 has 0: "),
    ],
)
def test_files_that_are_not_parallel(tmp_path, kind, contents, message):
    paths = [write(tmp_path / str(n), content) for n, content in enumerate(contents)]
    with pytest.raises(UserError, match=message):
        next(LocalSource(kind, paths).pairs())


def test_what_is_left_out_is_counted(tmp_path):
    write(tmp_path / "a", "one\n\nthree\n")
    write(tmp_path / "b", "eins\nzwei\n \n")
    write(tmp_path / "c.tsv", "vier\tfour\nfünf\n\tsix\n")
    write(tmp_path / "d.tmx", "<tu><seg>x</seg></tu>\n<tu><seg>y</seg><seg>z</seg></tu>\n")
    dropped = Counter()
    sources = [["", ("a", "b")], ["", ("tsv", 1, 0, "*.tsv")], ["", ("tmx", "d.tmx")]]
    found = list(read_sources(tmp_path, sources, dropped))
    assert found == [("one", "eins"), ("four", "vier"), ("y", "z")]
    assert dropped == {"empty": 3, "malformed": 2}


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    line = "Die Größe des Korpus ist gleichgültig, wenn man ihn nie im Ganzen hält. " * 2
    for name in ("a", "b"):
        write(tmp_path / name, (line + "\n") * 150_000)
    assert (tmp_path / "a").stat().st_size > 20e6
    tracemalloc.start()
    count = sum(1 for _ in read_sources(tmp_path, [["", ("a", "b")]], Counter()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 150_000
    assert peak < 5e6
