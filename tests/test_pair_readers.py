"""Files of sentence pairs: every form, every way to be wrong, and in little memory."""

import gzip
import tracemalloc
from collections import Counter

import pytest

from t2t_keras.data.sources import pair_readers
from t2t_keras.data.sources.data_files import read_sources
from t2t_keras.data.sources.pair_readers import (
    TextSize,
    read_pairs,
    read_sgm,
    read_tmx,
    read_tsv,
    require_parallel,
    text_size,
)
from t2t_keras.errors import UserError


def write(path, content):
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture(params=["", ".gz"])
def suffix(request):
    return request.param


# Text


@pytest.mark.parametrize(
    ("content", "lines"),
    [("", 0), ("\n", 1), ("a", 1), ("a\nb\n", 2), ("a\n\nb", 3), ("a\u2028b\x0cc\rd\n", 1)],
)
def test_sizes(tmp_path, suffix, content, lines):
    path = write(tmp_path / f"a{suffix}", content)
    assert text_size(path) == TextSize(lines, len(content.encode()))


def test_a_byte_order_mark_is_no_text(tmp_path, suffix):
    first = write(tmp_path / f"a{suffix}", "\ufeffeins\nzwei\n")
    second = write(tmp_path / f"b{suffix}", "\ufeffone\ntwo\n")
    assert text_size(first) == TextSize(2, 10)
    assert list(read_pairs(first, second)) == [("eins", "one"), ("zwei", "two")]
    assert text_size(write(tmp_path / f"c{suffix}", "\ufeff")) == TextSize(0, 0)


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path):
    path = write(tmp_path / "a", "one\n")
    before = pair_readers._text_size.cache_info().misses
    assert [text_size(path).lines for _ in "123"] == [1, 1, 1]
    assert pair_readers._text_size.cache_info().misses == before + 1
    write(path, "one\ntwo\n")
    assert text_size(path).lines == 2


@pytest.mark.parametrize("block", [1, 3, 7, 1 << 20])
def test_characters_may_span_blocks_and_a_line_that_is_not_utf8_is_named(
    tmp_path, suffix, monkeypatch, block
):
    monkeypatch.setattr(pair_readers, "_BLOCK", block)
    assert text_size(write(tmp_path / f"b{suffix}", "größe 😀\nẞ\n")).lines == 2
    path = write(tmp_path / f"a{suffix}", "größe\nwörter\n".encode() + b"zw\xc3\nvier\n")
    with pytest.raises(UserError, match=r"a(\.gz)?, line 3: not UTF-8 \(byte 0xc3 at column 3\)"):
        text_size(path)
    with pytest.raises(UserError, match=r"c, line 2: not UTF-8"):
        text_size(write(tmp_path / "c", b"eins\nzwei\xc3"))


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text" * 100)[:-9])
    with pytest.raises(UserError, match=r"a\.gz is not a whole gzip file"):
        text_size(tmp_path / "a.gz")
    with pytest.raises(UserError, match=r"Cannot read .*absent: No such file"):
        text_size(tmp_path / "absent")


def test_a_line_without_end_is_no_text(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(pair_readers, "_BLOCK", 100)
    monkeypatch.setattr(pair_readers, "LINE_BYTES", 1000)
    assert text_size(write(tmp_path / f"a{suffix}", ("x" * 999 + "\n") * 3)).lines == 3
    path = write(tmp_path / f"b{suffix}", "x\n" + "x" * 1200)
    with pytest.raises(UserError, match=r"b(\.gz)?, line 2: longer than"):
        text_size(path)


def test_parallel_files_are_parallel(tmp_path):
    two, three = write(tmp_path / "two", "1\n2\n"), write(tmp_path / "three", "1\n2\n3")
    with pytest.raises(UserError, match=r"two has 2 lines and .*three has 3: "):
        require_parallel(two, three)
    with pytest.raises(UserError, match=r"empty is empty"):
        require_parallel(two, write(tmp_path / "empty", ""))
    with pytest.raises(UserError, match=r"two has 2 lines"):
        next(read_pairs(two, three))


def test_pairs_are_stripped_lines(tmp_path, suffix):
    first = write(tmp_path / f"a{suffix}", " one \r\n\ntwo\u2028lines\rhere\n\u00a0four")
    second = write(tmp_path / f"b{suffix}", "\teins\nzwei\ndrei\nvier\n")
    found = list(read_pairs(first, second))
    assert found == [
        ("one", "eins"),
        ("", "zwei"),
        ("two\u2028lines\rhere", "drei"),
        ("four", "vier"),
    ]


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


# SGM

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


def test_sgm_segments_go_together(tmp_path, suffix):
    """T2T's `_preprocess_sgm` leaves entities alone, and a segment that goes on is nothing."""
    first = write(tmp_path / f"src.en.sgm{suffix}", SOURCE_SGM)
    second = write(tmp_path / f"ref.de.sgm{suffix}", TARGET_SGM)
    pairs = [("Profit &amp; loss", "Gewinn &lt; Verlust"), ("A cat.", ""), ("", "Drei.")]
    assert list(read_sgm(first, second)) == pairs


def test_sgm_files_of_different_sets(tmp_path):
    first = write(tmp_path / "a.sgm", SOURCE_SGM)
    second = write(tmp_path / "b.sgm", '<seg id="1">eins</seg>\n')
    with pytest.raises(UserError, match=r"a\.sgm has 3 segments and .*b\.sgm has 1: "):
        list(read_sgm(first, second))
    with pytest.raises(UserError, match=r"text has 0 segments and .*text has 0: "):
        list(read_sgm(write(tmp_path / "text", "one\n"), tmp_path / "text"))


# TMX


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


def test_tmx_units_are_pairs(tmp_path, suffix):
    """Entities as in T2T's `_raw_sentences`: "&" first, so that some are replaced twice."""
    first = ('Tom & Jerry <3 "cheese"', "Tom & Jerry < 3 \"Käse'")
    found = list(read_tmx(write(tmp_path / f"a.tmx{suffix}", TMX)))
    assert found == [first, ("one", "eins"), None, ("two", "")]


# Tables


def test_tables_give_two_columns(tmp_path, suffix):
    rows = 'x\ty\teins\t one \nno tab\nx\ty\tz\nx\ty\t\tquo"te\n'
    path = write(tmp_path / f"a.tsv{suffix}", rows)
    assert list(read_tsv(path, 3, 2)) == [("one", "eins"), None, None, ('quo"te', "")]


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
