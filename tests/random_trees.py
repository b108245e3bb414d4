"""Parse trees: any for hypothesis, and simple sentences to train on."""

import random

from hypothesis import strategies as st

from t2t_keras.parsing import Tree

_words = st.text(st.characters(codec="utf-8", exclude_characters="() \t\n\r\f\v"), min_size=1)
_labels = st.sampled_from(["S", "NP", "VP", "PP", "ADVP", "SBAR", "-X-", "NP-SBJ"])
_tags = st.sampled_from(["NN", ",", "-LRB-", "PRP$", "CD", "."])
_phrases = st.recursive(
    st.builds(lambda tag, word: Tree(tag, (word,)), _tags, _words),
    lambda nodes: st.builds(Tree, _labels, st.lists(nodes, min_size=1, max_size=5).map(tuple)),
    max_leaves=20,
)
trees = st.builds(Tree, st.just("TOP"), st.lists(_phrases, min_size=1, max_size=3).map(tuple))
"""Labels are either tags or phrases, never both; words hold no bracket or white space."""

_RULES = {
    "S": ["(S {NP} {VP} (. .))"],
    "NP": ["(NP-SBJ {DT} {NN})", "(NP {DT} {NN} {PP})", "(NP {DT} {NN})", "(NP {NN})"],
    "VP": ["(VP {VBZ} {NP})", "(VP {VBZ})", "(VP {VBZ} {NP} (PP (IN by) {NP}))"],
    "PP": ["(PP (IN in) {NP})", "(PP (IN on) {NP})"],
    "DT": ["(DT the)", "(DT a)"],
    "NN": ["(NN tea)", "(NN cup)", "(NN cat)", "(NN house)"],
    "VBZ": ["(VBZ sees)", "(VBZ takes)", "(VBZ drinks)"],
}


def sentences(count, seed):
    """Trees in brackets, with the root ROOT. Words tell what stands where."""
    generator = random.Random(seed)

    def expand(symbol, depth):
        rules = _RULES[symbol][-1:] if depth > 3 else _RULES[symbol]
        text = generator.choice(rules)
        for name in _RULES:
            while f"{{{name}}}" in text:
                text = text.replace(f"{{{name}}}", expand(name, depth + 1), 1)
        return text

    return [f"(ROOT {expand('S', 0)})" for _ in range(count)]
