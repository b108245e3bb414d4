"""Figures that EVALB with its parameters COLLINS.prm printed for these trees."""

FORTY = " (NN tea)" * 40

SAW = (
    "(TOP (S (NP-SBJ (PRP We)) (VP (VBD saw) (NP (DT the) (NN man)) "
    "(PP-CLR (IN with) (NP (DT a) (NN glass)))) (. .)))"
)

SENTENCES = {
    "equal but for functional tags": (
        SAW,
        "(TOP (S (NP (PRP We)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP "
        "(DT a) (NN glass)))) (. .)))",
    ),
    "another attachment": (
        SAW,
        "(TOP (S (NP (PRP We)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) "
        "(NP (DT a) (NN glass))))) (. .)))",
    ),
    "crossing brackets": (
        SAW,
        "(TOP (S (NP (PRP We) (VBD saw) (DT the)) (VP (NN man) (PP (IN with) (DT a)) (NP "
        "(NN glass)) (. .))))",
    ),
    "labels end at = too, and a first - leaves none": (
        "(TOP (S (NP=2 (NN tea)) (VP-1=2 (VBZ cools)) (-A (RB now))))",
        "(TOP (S (NP (NN tea)) (VP=1-2 (VBZ cools)) (-B (RB now))))",
    ),
    "ADVP is PRT": (
        "(TOP (VP (VB take) (NP (PRP it)) (PRT (RP off))))",
        "(TOP (VP (VB take) (NP (PRP it)) (ADVP (RP off))))",
    ),
    "tags that differ, in whole": (
        "(TOP (S (NP (NN tea)) (VP (VBZ cools))))",
        "(TOP (S (NP (NN-X tea)) (VP (NNS cools))))",
    ),
    "doubled brackets": (
        "(TOP (NP (NP (NP (DT the) (NN man)))))",
        "(TOP (NP (NP (DT the) (NN man))))",
    ),
    "more doubled brackets than there are": (
        "(TOP (NP (DT the) (NN man)))",
        "(TOP (NP (NP (NP (DT the) (NN man)))))",
    ),
    "unary chains in another order": ("(TOP (S (VP (VB go))))", "(TOP (VP (S (VB go))))"),
    "punctuation elsewhere": (
        "(TOP (S (`` ``) (NP (NN tea)) (, ,) (VP (VBZ cools) (: --) (RB now)) (. .) ('' '')))",
        "(TOP (S (NP (`` ``) (NN tea) (, ,)) (VP (VBZ cools) (RB now) (: ;) (. .) ('' ''))))",
    ),
    "punctuation left out": (
        "(TOP (S (NP (NN tea)) (VP (VBZ cools)) (. .)))",
        "(TOP (S (NP (NN tea)) (VP (VBZ cools))))",
    ),
    "traces and what is around them": (
        "(TOP (S (NP-SBJ-1 (NN tea)) (VP (VBZ is) (VP (VBN made) (NP (-NONE- *-1)) (SBAR "
        "(-NONE- 0) (S (-NONE- *T*)))))))",
        "(TOP (S (NP (NN tea)) (VP (VBZ is) (VP (VBN made)))))",
    ),
    "a trace as a phrase is a bracket": (
        "(TOP (S (-NONE- (NP (NN tea)))))",
        "(TOP (S (NP (NN tea))))",
    ),
    "punctuation as a phrase is none": (
        "(TOP (S (NP (NN tea)) (, (RB now))))",
        "(TOP (S (NP (NN tea)) (RB now)))",
    ),
    "TOP anywhere is no bracket": (
        "(TOP (S (NP (NN tea))))",
        "(TOP (S (TOP (TOP-X (NP (NN tea))))))",
    ),
    "other roots are brackets": ("(TOP (S (NP (NN tea))))", "(ROOT (S (NP (NN tea))))"),
    "the root without a label is one": ("( (S (NP (NN tea))) )", "( (S (NP (NN tea))) )"),
    "several trees": ("(TOP (NP (NN tea))) (TOP (NP (NN milk)))", "(TOP (NP (NN tea) (NN milk)))"),
    "odd white space": (
        "(TOP(S(NP(NN tea))(VP\t(VBZ  cools))))",
        " (TOP (S (NP (NN tea)) (VP (VBZ cools))))  ",
    ),
    "a bracket around nothing": ("(TOP (S (NP) (VP (VB go))))", "(TOP (S (VP (VB go)) (X ())))"),
    "a word of no letters": (
        "(TOP (S (NP (NN )) (VP (VB go))))",
        "(TOP (S (NP (NN )) (VP (VB go))))",
    ),
    "nothing predicted": ("(TOP (S (NP (NN tea))))", ""),
    "an empty bracket predicted": ("(TOP (S (NP (NN tea))))", "(())"),
    "punctuation alone predicted": ("(TOP (S (NP (NN tea))))", "(TOP (. .))"),
    "nothing but punctuation in either": ("(TOP (. .))", "(TOP (. .))"),
    "nothing in the gold tree": ("(TOP )", "(TOP (NP (NN tea)))"),
    "punctuation taken for a word": (
        "(TOP (S (NP (NN tea)) (. .)))",
        "(TOP (S (NP (NN tea)) (NN .)))",
    ),
    "a quote taken for an apostrophe": (
        "(TOP (NP (NNS teas) ('' ')))",
        "(TOP (NP (NNS teas) (POS ')))",
    ),
    "a word missing": ("(TOP (S (NP (NN tea)) (VP (VBZ cools))))", "(TOP (S (NP (NN tea))))"),
    "another word": (
        "(TOP (S (NP (NN tea)) (VP (VBZ cools))))",
        "(TOP (S (NP (NN tea)) (VP (VBZ cool))))",
    ),
    "another word of punctuation": (
        "(TOP (S (NP (NN tea)) (. .)))",
        "(TOP (S (NP (NN tea)) (. !)))",
    ),
    "never closed": ("(TOP (S (NP (NN tea))))", "(TOP (S (NP (NN tea)))"),
    "never closed in the gold tree": ("(TOP (S (NP (NN tea)))", "(TOP (S (NP (NN tea))))"),
    "closed too often": ("(TOP (S (NP (NN tea))))", "(TOP (S (NP (NN tea)))))"),
    "forty words": (f"(TOP (NP{FORTY}))", f"(TOP (NP{FORTY}))"),
    "forty words and a trace": (f"(TOP (NP{FORTY} (-NONE- *)))", f"(TOP (X{FORTY}))"),
    "forty words and a full stop": (f"(TOP (NP{FORTY} (. .)))", f"(TOP (NP{FORTY}))"),
    "three crossing brackets": (
        "(TOP (S (NP (DT a) (NN b)) (VP (VB c) (NP (DT d) (NN e)) (PP (IN f) (NP (NN g))))))",
        "(TOP (S (DT a) (Q (X (NN b) (VB c)) (DT d)) (Z (NN e) (IN f)) (NN g)))",
    ),
}
"""Of each: gold tree and predicted tree."""

TABLE = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
============================================================================
   1    8    0  100.00 100.00     6      6    6      0      7     7   100.00
   2    8    0  100.00  85.71     6      6    7      0      7     7   100.00
   3    8    0   16.67  20.00     1      6    5      3      7     7   100.00
   4    3    0  100.00 100.00     4      4    4      0      3     3   100.00
   5    3    0  100.00 100.00     3      3    3      0      3     3   100.00
   6    2    0  100.00 100.00     3      3    3      0      2     0     0.00
   7    2    0   66.67 100.00     2      3    2      0      2     2   100.00
   8    2    0  100.00  33.33     1      1    3      0      2     2   100.00
   9    1    0  100.00 100.00     2      2    2      0      1     1   100.00
  10    8    0  100.00 100.00     3      3    3      0      3     3   100.00
  11    3    0  100.00 100.00     3      3    3      0      2     2   100.00
  12    3    0  100.00 100.00     4      4    4      0      3     3   100.00
  13    1    0   66.67 100.00     2      3    2      0      1     1   100.00
  14    2    0  100.00 100.00     2      2    2      0      2     2   100.00
  15    1    0  100.00 100.00     2      2    2      0      1     1   100.00
  16    1    0  100.00  66.67     2      2    3      0      1     1   100.00
  17    1    0  100.00 100.00     3      3    3      0      1     1   100.00
  18    2    0    0.00   0.00     0      2    1      0      2     2   100.00
  19    2    0  100.00 100.00     3      3    3      0      2     2   100.00
  20    1    0  100.00 100.00     2      2    2      0      1     1   100.00
  21    2    0  100.00 100.00     3      3    3      0      2     2   100.00
  22    1    2    0.00   0.00     0      0    0      0      0     0     0.00
  23    1    2    0.00   0.00     0      0    0      0      0     0     0.00
  24    1    2    0.00   0.00     0      0    0      0      0     0     0.00
  25    1    2    0.00   0.00     0      0    0      0      0     0     0.00
  26    1    1    0.00   0.00     0      0    0      0      0     0     0.00
  27    2    1    0.00   0.00     0      0    0      0      0     0     0.00
  28    2    1    0.00   0.00     0      0    0      0      0     0     0.00
  29    2    1    0.00   0.00     0      0    0      0      0     0     0.00
  30    2    1    0.00   0.00     0      0    0      0      0     0     0.00
  31    2    0  100.00 100.00     2      2    2      0      1     1   100.00
  32    1    1    0.00   0.00     0      0    0      0      0     0     0.00
  33    1    1    0.00   0.00     0      0    0      0      0     0     0.00
  34    1    1    0.00   0.00     0      0    0      0      0     0     0.00
  35   40    0  100.00 100.00     1      1    1      0     40    40   100.00
  36   40    0    0.00   0.00     0      1    1      0     40    40   100.00
  37   41    0  100.00 100.00     1      1    1      0     40    40   100.00
  38    7    0   16.67  25.00     1      6    4      3      7     7   100.00
============================================================================
"""
"""As EVALB prints it, but zeros where status is 1: EVALB counts on there for nothing."""

FIGURES = [
    tuple(int(row.split()[column]) for column in (1, 2, 5, 6, 7, 8, 9, 10))
    for row in TABLE.splitlines()[3:-1]
]
"""Of each: length, status (1 is an error, 2 skipped), brackets that match, that are gold, that are
predicted, that cross, words, right tags."""

SUMMARY = """\
-- All --
Number of sentence        =     38
Number of Error sentence  =      8
Number of Skip  sentence  =      4
Number of Valid sentence  =     26
Bracketing Recall         =  80.52
Bracketing Precision      =  82.67
Bracketing FMeasure       =  81.58
Complete match            =  65.38
Average crossing          =   0.23
No crossing               =  92.31
2 or less crossing        =  92.31
Tagging accuracy          =  98.91

-- len<=40 --
Number of sentence        =     37
Number of Error sentence  =      8
Number of Skip  sentence  =      4
Number of Valid sentence  =     25
Bracketing Recall         =  80.26
Bracketing Precision      =  82.43
Bracketing FMeasure       =  81.33
Complete match            =  64.00
Average crossing          =   0.24
No crossing               =  92.00
2 or less crossing        =  92.00
Tagging accuracy          =  98.60
"""

GUM_FIGURES = {
    0.02: "1575 58 1 1516 98.57 97.66 98.11 69.85 0.04 95.71 100.00 99.28 "
    "1466 47 1 1418 98.57 97.64 98.10 72.36 0.04 96.33 100.00 99.26",
    0.1: "1575 219 8 1348 92.84 88.98 90.87 29.82 0.18 83.68 99.93 96.16 "
    "1466 181 7 1278 92.89 88.98 90.89 31.38 0.15 85.60 100.00 96.06",
    0.3: "1575 564 33 978 79.77 71.29 75.29 12.78 0.37 72.70 98.57 88.58 "
    "1466 487 31 948 80.09 71.46 75.53 13.19 0.33 74.37 99.05 88.67",
}
"""The summary of the dev trees of GUM as `damaged` makes them at a rate, with seed 1."""
