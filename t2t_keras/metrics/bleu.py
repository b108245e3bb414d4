"""BLEU as tensor2tensor, the Transformer paper and recent papers report it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError, importing, require_one_of, several_texts

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEUScore

_MAX_ORDER = 4


@dataclasses.dataclass(frozen=True)
class Bleu:
    """BLEU scores of one translation of a corpus, from 0 to 100."""

    sacrebleu: float
    """Cased corpus BLEU of untokenised text (13a), comparable between papers."""
    signature: str
    """sacreBLEU's signature: version and settings."""
    t2t_cased: float
    """BLEU_cased of T2T's `t2t-bleu` (international tokenisation)."""
    t2t_uncased: float
    """BLEU_uncased of `t2t-bleu`."""
    paper_style: float
    """Moses tokenisation, German compounds split, unsmoothed: close to the paper's scores, which are about
    0.7 higher than sacreBLEU's; `paper_style` lists the differences."""


def bleu(references: Sequence[str], hypotheses: Sequence[str], language: str = "de") -> Bleu:
    """Scores a translation of a corpus against one reference per sentence, in plain text.

    Args:
        references, hypotheses: one sentence per item.
        language: the rules of `paper_style`: "de", which T2T's script uses for every language, or "fr".

    Raises:
        UserError: the two differ in length or are empty, or there are no rules for the language.
    """
    require_one_of("language", language, LANGUAGES)
    references = several_texts("references", references)
    hypotheses = several_texts("hypotheses", hypotheses)
    if len(references) != len(hypotheses):
        raise UserError(
            f"{len(references)} references but {len(hypotheses)} translations; "
            "BLEU needs one translation for each reference, in the same order."
        )
    if not references:
        raise UserError("There are no sentences to score; BLEU needs at least one.")
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references]).score
    in_style = functools.partial(paper_style, language=language)
    lower = [[line.lower() for line in lines] for lines in (references, hypotheses)]
    return Bleu(
        sacrebleu=score,
        signature=str(metric.get_signature()),
        t2t_cased=t2t_bleu(references, hypotheses),
        t2t_uncased=t2t_bleu(*lower),
        paper_style=_unsmoothed(references, hypotheses, in_style).score,
    )


def _unsmoothed(
    references: Sequence[str], hypotheses: Sequence[str], tokenize: Callable[[str], list[str]]
) -> BLEUScore:
    """Returns unsmoothed BLEU, as in multi-bleu, with its n-gram counts."""
    from sacrebleu.metrics import BLEU

    ours, theirs = (
        [" ".join(tokenize(line)) for line in each] for each in (hypotheses, references)
    )
    metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=_MAX_ORDER, force=True)
    return metric.corpus_score(ours, [theirs])


def t2t_bleu(
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    tokenize: Callable[[str], list[str]] | None = None,
) -> float:
    """Returns T2T's `compute_bleu`, 0 to 100, in single precision as in T2T.

    By default, `international` tokenizes.

    The first order without a match counts as half a match, the second as a quarter, and so on. An order
    without any n-gram counts as a precision of 1, for which sacreBLEU would return 0.
    """
    import numpy as np

    counted = _unsmoothed(references, hypotheses, tokenize or international)
    if not counted.sys_len:
        return 0.0
    share, log_precisions = 1.0, 0.0
    for matches, ngrams in zip(counted.counts, counted.totals, strict=True):
        if ngrams:
            share /= 1 if matches else 2
            log_precisions += math.log((matches or share) / ngrams)
    brevity = min(0.0, 1 - counted.ref_len / counted.sys_len)
    return 100 * float(np.float32(math.exp(log_precisions / _MAX_ORDER + brevity)))


def international(line: str) -> list[str]:
    """Tokenizes like mteval-v14 with `--international-tokenization`, in tensor2tensor's version.

    Symbols are separate tokens; so is punctuation, except between digits and after a digit at the end of the
    line. Unlike in sacreBLEU's `intl`, only decimal digits are digits; the backslash is not punctuation.
    """
    after_nondigit, before_nondigit, symbol = _international_patterns()
    line = before_nondigit.sub(r" \1 \2", after_nondigit.sub(r"\1 \2 ", line))
    return symbol.sub(r" \1 ", line).split()


@functools.cache
def _international_patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    # As ranges: `re` would compare with thousands of single characters in turn. The million code points
    # from plane 2 on (ideographs, tags, private characters) have neither punctuation nor symbols.
    def kind(character: str) -> str:
        return "" if character == "\\" else unicodedata.category(character)[0]

    ranges = {"P": "", "S": ""}
    for its_kind, run in itertools.groupby(map(chr, range(0x20000)), kind):
        if its_kind in ranges:
            characters = list(run)
            ranges[its_kind] += f"\\U{ord(characters[0]):08x}-\\U{ord(characters[-1]):08x}"
    punctuation, symbols = ranges.values()
    return (
        re.compile(rf"([^\d])([{punctuation}])"),
        re.compile(rf"([{punctuation}])([^\d])"),
        re.compile(f"([{symbols}])"),
    )


def paper_style(line: str, language: str = "de") -> list[str]:
    """Tokenizes like T2T's `get_ende_bleu.sh`: Moses for German, then splits compounds at hyphens.

    `language` may also be "fr": Moses for French with unsplit compounds (T2T has no such script).
    There an apostrophe between two letters ends a word, one of a line's first or last word stays
    with it, and abbreviations are Moses's French ones.

    As in that script, full-width and typographic punctuation becomes ASCII; punctuation and symbols are
    separate tokens; commas between digits, periods between characters and runs of periods are not split; the
    period of a word is split off at the end of the line and, within it, unless the word has an inner period,
    is a known abbreviation, a single letter, a Roman number up to 20 or an ordinal up to 99, or the next word
    starts in lower case; `a-b` becomes `a ##AT##-##AT## b`.

    Not implemented: Moses's escapes of `&`, `<` etc., which change no n-gram match; its other German
    abbreviations (they would change 2 of the 9,006 German lines of newstest2012 to 2014); its protected
    patterns; its rules for other languages.
    """
    line = _FULL_STOPS.sub(". ", line.translate(_TYPOGRAPHIC))
    line = re.sub(r"[\x00-\x1f]", "", " ".join(line.split()))
    line = _SEPARATE[language].sub(r" \g<0> ", line)
    words = _ELISION.sub(r"\1' \2", line).split()
    cut = (
        f"{word[:-1]} ." if _ends_in_full_stop(word, after, _KEEPS_PERIOD[language]) else word
        for word, after in itertools.pairwise([*words, ""])
    )
    line = " ".join(cut)
    return (_COMPOUND.sub(r"\1 ##AT##-##AT## \2", line) if language == "de" else line).split()


LANGUAGES = ("de", "fr")  # of `paper_style`

_TYPOGRAPHIC = str.maketrans(
    "，、”“《》」「∶：？）！（；～’━〈〉【】％０１２３４５６７８９",
    ',,""""""::?)!(;~\'-<>[]%0123456789',
) | {ord("…"): "..."}
_FULL_STOPS = re.compile("[。．] *")
_LETTER = r"[^\W\d_]"
_ELISION = re.compile(rf"({_LETTER})'({_LETTER})")
_SEPARATE = {
    language: re.compile(
        rf"""\.{{2,}}                # an ellipsis
          | [^\w\s.'`,-] | [_²³¹¼-¾] # what is neither letter nor digit
          | {apostrophe}
          | (?<=\D), | ,(?=\D|$)     # a comma that is not between digits
        """,
        re.VERBOSE,
    )
    for language, apostrophe in (
        ("de", "'"),
        # between two characters that are not both letters, and after a last period
        ("fr", rf"(?<=[\W\d_])'(?=.) | (?<={_LETTER})'(?=[\W\d_]) | (?<=\.)'$"),
    )
}
_KEEPS_PERIOD = {
    "de": re.compile(
        r"""[A-Za-z] | [1-9]\d?
          | X?(?:IX|IV|V?I{0,3}) | XX | x?(?:ix|iv|v?i{0,3}) | xx
          | Adm|Art|BSE|Buchst|Ca|Capt|Chr|Co|Col|Corp|Dr|Gen|Ltd|MwSt|Mio|Mr|Mrd|Mrs|Ms|No|Nr|Prof
          | Rev|Sen|Sgt|St|Std|bzgl|bzw|ca|dergl|dgl|etc|evtl|ff|jun|pp|sen|sog|usw|vgl|vs
        """,
        re.VERBOSE,
    ),
    "fr": re.compile(
        r"""[A-Zb-z]
          | MM|SS|al|ann|apr|art|auj|av|boul|ca|cf|chap|contr|dir|env|etc|ex|fasc|fig|fr|fém|hab
          | ibid|id|inf|lib|masc|ms|pl|pp|sec|sect|sing|sq|sqq|suiv|sup|suppl|tél|vb|vol|vs|éd
        """,
        re.VERBOSE,
    ),
}
_COMPOUND = re.compile(r"(\S)-(\S)")


def _ends_in_full_stop(word: str, after: str, keeps_period: re.Pattern[str]) -> bool:
    """Returns True if the period of `word`, which is followed by `after`, is a separate token."""
    stem = word[:-1]
    if not word.endswith(".") or not stem.strip("."):
        return False
    inner_period = "." in stem and any(map(str.isalpha, stem))
    return not (after and (inner_period or keeps_period.fullmatch(stem) or after[0].islower()))


# ROUGE of summaries, with the package `rouge-score` (`pip install 't2t-keras[rouge]'`)

NAMES = ("rouge1", "rouge2", "rougeL")  # single words, pairs, the longest common subsequence


def rouge(references: Sequence[Sequence[str]], hypotheses: Sequence[str]) -> dict[str, float]:
    """Returns the mean F1, 0 to 100, of each of `NAMES`, with stemmed words and ignoring case.

    Args:
        references: one or more references for each hypothesis; the best one counts.

    Raises:
        UserError: there are no summaries, the numbers differ, or `rouge-score` is missing.
    """
    hypotheses = several_texts("hypotheses", hypotheses)
    references = [several_texts("references", each) for each in references]
    if not (hypotheses and all(references)) or len(references) != len(hypotheses):
        raise UserError(
            f"ROUGE needs a reference for each summary, got {len(references)} and {len(hypotheses)}."
        )
    with importing("ROUGE is missing", "pip install 't2t-keras[rouge]'"):
        from rouge_score.rouge_scorer import RougeScorer
    scorer = RougeScorer(NAMES, use_stemmer=True)
    pairs = zip(references, hypotheses, strict=True)
    scores = [scorer.score_multi(list(several), hypothesis) for several, hypothesis in pairs]
    return {name: 100 * sum(s[name].fmeasure for s in scores) / len(scores) for name in NAMES}
