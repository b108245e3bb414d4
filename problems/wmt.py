"""Parts of the WMT workshops' archives that several language pairs share, as sources."""

from __future__ import annotations

_STATMT = "http://www.statmt.org"
_WMT17 = "http://data.statmt.org/wmt17/translation-task"
_WMT18 = "http://data.statmt.org/wmt18/translation-task"


def common_crawl(language: str) -> list:
    """Returns Common Crawl (WMT 2013), English and another language ("de")."""
    names = (f"commoncrawl.{language}-en.en", f"commoncrawl.{language}-en.{language}")
    return [f"{_STATMT}/wmt13/training-parallel-commoncrawl.tgz", names]


def europarl_v7(language: str) -> list:
    """Returns Europarl v7."""
    stem = f"training/europarl-v7.{language}-en"
    url = f"{_STATMT}/wmt13/training-parallel-europarl-v7.tgz"
    return [url, (f"{stem}.en", f"{stem}.{language}")]


def news_commentary_v9(language: str) -> list:
    """Returns News Commentary v9, that of WMT 2014."""
    stem = f"training/news-commentary-v9.{language}-en"
    url = f"{_STATMT}/wmt14/training-parallel-nc-v9.tgz"
    return [url, (f"{stem}.en", f"{stem}.{language}")]


def news_commentary_v13(language: str) -> list:
    """Returns News Commentary v13, that of WMT 2018."""
    stem = f"training-parallel-nc-v13/news-commentary-v13.{language}-en"
    url = f"{_WMT18}/training-parallel-nc-v13.tgz"
    return [url, (f"{stem}.en", f"{stem}.{language}")]


def un_2000(language: str) -> list:
    """Returns documents of the United Nations (WMT 2013)."""
    stem = f"un/undoc.2000.{language}-en"
    url = f"{_STATMT}/wmt13/training-parallel-un.tgz"
    return [url, (f"{stem}.en", f"{stem}.{language}")]


def newstest2013(language: str) -> list:
    """Returns newstest2013: 3,000 sentences."""
    return [f"{_WMT17}/dev.tgz", ("dev/newstest2013.en", f"dev/newstest2013.{language}")]
