"""T2T's text_problems, translate, problem, modalities and metrics: the names that are not in `t2t_keras.data`."""

# ruff: noqa: E731 (one-line functions)

from __future__ import annotations

import glob
from functools import partial
from itertools import chain, islice, zip_longest

from t2t_keras import data
from t2t_keras.data.sources import compile_data as compile_data
from t2t_keras.ids import EOS_ID
from t2t_keras.text import ClassLabelEncoder, iterate_lines
from t2t_keras.text.lines import warn_once


class _Names(type):
    def __getattr__(cls, name):
        if not name.isupper():
            raise AttributeError(name)
        return name.removesuffix("_LOSS").lower()


class Metrics(metaclass=_Names):
    ACC, ACC_TOP5, ACC_PER_SEQ = "accuracy", "accuracy_top5", "accuracy_per_sequence"
    APPROX_BLEU, ROUGE_2_F, ROUGE_L_F = "approx_bleu_score", "rouge_2_fscore", "rouge_L_fscore"


ModalityType = _Names("ModalityType", (), {})
txt_line_iterator = lambda txt_path: map(str.strip, iterate_lines(txt_path))
txt_line_sharded_iterator = lambda txt_pattern: chain.from_iterable(
    map(txt_line_iterator, sorted(glob.glob(txt_pattern)))
)


def _samples(fields, *paths, read=txt_line_iterator, **named):
    """Yields a line of each file by its field, up to the end of the shortest file (T2T's rule)."""
    paths += tuple(named[key] for key in sorted(named, key=lambda key: "std".index(key[0])))
    for lines in zip_longest(*map(read, paths)):
        if None in lines:
            warn_once(f"{paths[lines.index(None)]} ends first of {paths}: the rest is left out")
            return
        yield dict(zip(fields, lines, strict=True))


text2self_txt_iterator = partial(_samples, ["targets"])
text2text_txt_iterator = partial(_samples, ["inputs", "targets"])
text2text_distill_iterator = partial(_samples, ["inputs", "targets", "dist_targets"])
text2text_txt_sharded_iterator = partial(text2text_txt_iterator, read=txt_line_sharded_iterator)
text2text_txt_iterator_with_index = lambda *paths, **named: (
    {**each, "idx": [i]} for i, each in enumerate(text2text_txt_iterator(*paths, **named))
)


def text2text_txt_tab_iterator(txt_path):
    read = txt_line_sharded_iterator if txt_path.endswith("*") else txt_line_iterator
    for inputs, tab, targets in (line.partition("\t") for line in read(txt_path)):
        if tab:
            yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2class_txt_iterator(source_txt_path, label_txt_path, class_strs=None):
    number = ClassLabelEncoder(class_strs).encode if class_strs else lambda label: [int(label)]
    for each in text2text_txt_iterator(source_txt_path, label_txt_path):
        yield {"inputs": each["inputs"], "label": number(each["targets"])[0]}


def text2text_generate_encoded(
    samples, vocab, targets_vocab=None, has_inputs=True, inputs_prefix="", targets_prefix=""
):
    sides = [("inputs", vocab, inputs_prefix)] if has_inputs else []
    sides.append(("targets", targets_vocab or vocab, targets_prefix))
    for sample in samples:
        yield sample | {s: [*v.encode(prefix + sample[s]), EOS_ID] for s, v, prefix in sides}


class QuestionAndContext2TextProblem(data.Text2TextProblem):
    """Pairs with a "context", which is stored; no model here reads it."""

    QUESTION_SEPARATOR, QUESTION_SEPARATOR_ID = "<EOQ>", 2
    additional_reserved_tokens = [QUESTION_SEPARATOR]

    def generate_text_for_vocab(self, data_dir, tmp_dir):
        samples = self.generate_samples(data_dir, tmp_dir, "train")
        samples = islice(samples, self.max_samples_for_vocab or None)
        return (each[field] for each in samples for field in ("inputs", "context", "targets"))

    def generate_encoded_samples(self, data_dir, tmp_dir, split):
        vocab = self.get_or_create_vocab(data_dir, tmp_dir)
        prefixes = self.inputs_prefix, self.targets_prefix
        samples = self.generate_samples(data_dir, tmp_dir, split)
        for sample in text2text_generate_encoded(samples, vocab, vocab, True, *prefixes):
            yield sample | {"context": [*vocab.encode(sample["context"]), EOS_ID]}


def bi_vocabs_token_generator(source_path, target_path, source_vocab, target_vocab, eos=None):
    ends = [] if eos is None else [eos]
    for each in text2text_txt_iterator(source_path, target_path):
        sides = zip(each.items(), (source_vocab, target_vocab), strict=True)
        yield {side: [*vocab.encode(text), *ends] for (side, text), vocab in sides}


character_generator = token_generator = lambda source_path, target_path, vocab, eos=None: (
    bi_vocabs_token_generator(source_path, target_path, vocab, vocab, eos)
)
