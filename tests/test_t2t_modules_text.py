"""T2T's text_encoder, generator_utils, text_problems and translate, beside results by hand."""

import gzip
import importlib
import math
import random

import numpy as np
import pytest
from corpus_files import stored_examples, write_archive, write_lines
from networks import search_model

from t2t_keras import registry, t2t_modules
from t2t_keras.data.problem import SPLITS
from t2t_keras.errors import UserError
from t2t_keras.export import export_saved_model
from t2t_keras.text import ByteTextEncoder, ClassLabelEncoder, SubwordTextEncoder, TokenTextEncoder

t2t_modules.install("no directory of users")
NAMES = "generator_utils", "problem", "text_encoder", "text_problems", "translate", "wsj_parsing"
generator_utils, problem, text_encoder, text_problems, translate, wsj_parsing = (
    importlib.import_module(f"tensor2tensor.data_generators.{name}") for name in NAMES
)
SUBWORDS = SubwordTextEncoder.build_to_target_size(30, {"low_": 3, "lower": 2}, 2, 2.0)
WORDS = TokenTextEncoder(vocab_list=["a", "b", "a"])


class Wider(text_encoder.TokenTextEncoder):
    """An encoder of users with another size."""

    @property
    def vocab_size(self):
        return super().vocab_size + 1


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: text_encoder.strip_ids([1, 5, 0, 1, 0], [0, 1]), [1, 5]),
        (lambda: [WORDS.decode([2, 1, 0], strip_extraneous=True), WORDS.encode("a")], ["a", [4]]),
        (lambda: WORDS.decode_list([3, 9]), ["b", "ID_9"]),
        (lambda: ByteTextEncoder().decode([67, 1, 0], strip_extraneous=True), "A"),
        (lambda: ByteTextEncoder().decode_list([67, 1]), ["A", "<EOS>"]),
        (lambda: SUBWORDS.decode(SUBWORDS.encode("low") + [1, 0], strip_extraneous=True), "low"),
        (lambda: "".join(SUBWORDS.decode_list(SUBWORDS.encode("lower"))), "lower_"),
        (lambda: SUBWORDS.decode(SUBWORDS.encode_without_tokenizing("low, low")), "low, low"),
        (lambda: ClassLabelEncoder(["x", "y"]).decode([1], strip_extraneous=True), "y"),
        (lambda: (WORDS.num_reserved_ids, ClassLabelEncoder("xy").num_reserved_ids), (2, 0)),
        (lambda: text_encoder.TextEncoder().encode("3 4"), [5, 6]),
        (lambda: text_encoder.TextEncoder(1).decode([4, 0, 0], strip_extraneous=True), "3"),
        (lambda: text_encoder.TextEncoder().decode([1, 4]), "<EOS> 2"),
        (lambda: [text_encoder.PAD, *text_encoder.RESERVED_TOKENS_BYTES][::2], ["<pad>", b"<EOS>"]),
        (lambda: (text_encoder.PAD_ID, text_encoder.NUM_RESERVED_TOKENS), (0, 2)),
        (lambda: text_encoder.native_to_unicode(b"a\xffb"), "ab"),
        (lambda: [text_encoder.to_unicode(each) for each in ("é", "é".encode())], ["é", "é"]),
        (lambda: [text_encoder.is_unicode(each) for each in ("a", b"a")], [True, False]),
        (
            lambda: text_problems.bleu_hook.compute_bleu([[1, 2, 3, 4, 5]], [[1, 2, 3, 4]]),
            pytest.approx(math.exp(-1 / 4)),
        ),
        (lambda: text_problems.bleu_hook.bleu_tokenize("a, 1,5."), ["a", ",", "1,5."]),
        (lambda: text_problems.metrics.Metrics.ROUGE_L_F, "rouge_L_fscore"),
        (lambda: text_problems.metrics.Metrics.SET_RECALL, "set_recall"),
        (lambda: text_problems.modalities.ModalityType.REAL_L2_LOSS, "real_l2"),
        (lambda: text_encoder.OneHotClassLabelEncoder(["x", "y"]).encode("y"), [0, 1]),
        (lambda: Wider(vocab_list=["a", "b"]).vocab_size, 5),
        (lambda: text_encoder.RealEncoder().encode("0.5 2"), [0.5, 2.0]),
        (lambda: text_encoder.RealEncoder().decode([0.5, 2]), "0.5 2"),
        (
            lambda: text_problems.misc_utils.camelcase_to_snakecase("AlgorithmicSCAN"),
            "algorithmic_scan",
        ),
        (lambda: text_problems.mlperf_log.transformer_print(key="k"), {"key": "k"}),
        (lambda: problem.TaskID.COLA, 6),
        (lambda: wsj_parsing.words_and_tags_from_wsj_tree("(TOP (A b))"), ("b", "A")),
        (lambda: (problem.DatasetSplit.EVAL, problem.SpaceID.DE_TOK), ("dev", 8)),
    ],
)
def test_calls(call, result):
    assert call() == result


def test_bleu_of_two_files(tmp_path):
    files = [
        str(write_lines(tmp_path / side, [line])) for side, line in (("a", "A b"), ("b", "a b"))
    ]
    whole, cased = (text_problems.bleu_hook.bleu_wrapper(*files, each) for each in (False, True))
    assert (whole, cased) == (1, pytest.approx((1 / 2 * 1 / 2) ** (1 / 4)))


def test_shards_are_dealt_shuffled_and_kept(tmp_path, capsys):
    g, examples = generator_utils, [{"inputs": [n, n + 1], "targets": [n * n]} for n in range(7)]
    made = (g.train_data_filenames, g.dev_data_filenames, g.test_data_filenames)
    names = [f"p-{split}-00000-of-00001" for split in SPLITS]
    assert [name("p", "d", 1) for name in made] == [[f"d/{name}"] for name in names]
    paths = g.train_data_filenames("p-unshuffled", tmp_path, 2)
    cases = [None, *examples, {"inputs": [9]}]
    g.generate_files(cases, paths, max_cases=7, cycle_every_n=2)
    dealt = [[*stored_examples(path)] for path in paths]
    assert dealt == [[examples[n] for n in shard] for shard in ((0, 1, 4, 5), (2, 3, 6))]
    g.shuffle_dataset(paths[:1], extra_fn=lambda records: sorted(records)[:1])
    g.shuffle_dataset(paths)
    final = [path.replace("-unshuffled", "") for path in paths]
    kept = [[*stored_examples(path)] for path in final]
    assert kept[0] == [examples[0]] and sorted(map(str, kept[1])) == sorted(map(str, dealt[1]))
    assert g.outputs_exist(paths) == final[0] and len([*tmp_path.iterdir()]) == 2
    g.generate_dataset_and_shuffle(cases, paths[1:], examples, [f"{tmp_path}/p-unshuffled-dev"])
    assert "exists, so no examples are generated" in capsys.readouterr().err
    assert len(g.read_records(f"{tmp_path}/p-dev")) == 7


def test_examples_of_all_kinds():
    made = generator_utils.to_example({"i": [1, 2], "f": [0.5], "s": ["é"], "b": (b"\0",)})
    feature = made.features.feature
    assert list(feature["i"].int64_list.value) == [1, 2]
    assert list(feature["f"].float_list.value) == [0.5]
    assert [feature[name].bytes_list.value[0] for name in "sb"] == ["é".encode(), b"\0"]
    for wrong in ([], [None]):
        with pytest.raises(UserError, match=r"'x' of an example is .*: give integers"):
            generator_utils.to_example({"x": wrong})


def test_files_are_copied_decompressed_and_sampled(tmp_path):
    """Of 450 bytes a budget of 50 takes every fifth line, 7 characters each, until it is used up."""
    g, lines = generator_utils, "".join(f"line {n:02d} \n" for n in range(50))
    url = str(write_archive(tmp_path / "a b.tgz", {"x/train.zh": lines.encode()}))
    sources, directory = [[url, ["x/train.zh"]]], f"{tmp_path}/tmp"
    chosen = [f"line {n:02d}" for n in range(4, 40, 5)]
    assert [*g.generate_lines_for_vocab(directory, sources, 50)] == chosen
    assert g.maybe_download(directory, "a b.tgz", "http://no.where") == f"{directory}/a b.tgz"
    (tmp_path / "c.gz").write_bytes(gzip.compress(b"one\r\ntwo"))
    g.gunzip_file(f"{tmp_path}/c.gz", f"{tmp_path}/c")
    assert (tmp_path / "c").read_bytes() == b"one\r\ntwo"
    first = g.get_or_generate_vocab(tmp_path, directory, "vocab", 40, sources, 50)
    again = g.get_or_generate_vocab(tmp_path, directory, "vocab", 90, sources)  # is read
    assert first.all_subtoken_strings == again.all_subtoken_strings
    reserved = ["<pad>", "<EOS>", "<x>"]
    built = g.get_or_generate_vocab_inner(None, None, 20, ["ab ab"], reserved_tokens=reserved)
    assert built.subtoken(2) == "<x>_"


@pytest.mark.parametrize(
    ("lengths", "settings", "rows"),
    [
        ([9], {}, [9]),
        ([9], {"chop_long_sequences": True}, [4, 4, 1]),
        ([3, 2, 1], {}, [4, 2]),
        ([3, 2, 1], {"queue_size": 1}, [3, 3]),
    ],
)
def test_packing_takes_the_settings_of_t2t(lengths, settings, rows):
    examples = [{"targets": [5] * length} for length in lengths]
    made = generator_utils.pack_examples(examples, False, 4, spacing=0, **settings)
    assert [len(row["targets"]) for row in made] == rows


def test_samples_from_files(tmp_path, capsys):
    t = text_problems
    files = {"a": ["one ", "two"], "b": ["1", "2", "3"], "ab.tsv": ["x\ty\tz", "q"]}
    a, b, tabs = (str(write_lines(tmp_path / name, lines)) for name, lines in files.items())
    both = [{"inputs": "one", "targets": "1"}, {"inputs": "two", "targets": "2"}]
    assert [*t.text2text_txt_iterator(target_txt_path=b, source_txt_path=a)] == both
    assert capsys.readouterr().err == f"warning: {a} ends before {b}: the rest is left out\n"
    assert [*t.text2text_txt_sharded_iterator(f"{a}*", b)][:2] == both
    assert [*t.text2text_txt_iterator_with_index(a, b)] == [{**both[n], "idx": [n]} for n in (0, 1)]
    assert next(t.text2text_distill_iterator(a, b, b)) == {**both[0], "dist_targets": "1"}
    assert [*t.text2self_txt_iterator(txt_path=a)] == [{"targets": "one"}, {"targets": "two"}]
    assert [*t.text2text_txt_tab_iterator(f"{tabs}*")] == [{"inputs": "x", "targets": "y\tz"}]
    assert [*t.text2text_txt_tab_iterator(tabs)] == [*t.text2text_txt_tab_iterator(f"{tabs}*")]
    assert [each["label"] for each in t.text2class_txt_iterator(a, b)] == [1, 2]
    assert [each["label"] for each in t.text2class_txt_iterator(b, a, ["two", "one"])] == [1, 0]
    made = translate.character_generator(b, b, ByteTextEncoder(), eos=1)
    assert next(made) == {"inputs": [51, 1], "targets": [51, 1]}
    digits = TokenTextEncoder(vocab_list=[*"123"])
    made = translate.bi_vocabs_token_generator(b, b, ByteTextEncoder(), digits)
    assert next(made) == {"inputs": [51], "targets": [2]}
    samples = [{"inputs": "b", "targets": "a", "n": 7}]
    encoded = t.text2text_generate_encoded(samples, WORDS, inputs_prefix="a ")
    assert [*encoded] == [{"inputs": [4, 3, 1], "targets": [4, 1], "n": 7}]
    source = [["", ("a", "a")]]
    given = tmp_path, tmp_path, "dev", t.text2text_txt_iterator
    own = {"source_data_files": lambda *_: source, "generate_encoded_samples": None}
    own = type("Own", (translate.TranslateProblem,), own)
    own().generate_samples(*given[:2], "train")  # which own methods read again from the files
    assert (tmp_path / "own-compiled-train.lang2").read_text() == "one\ntwo\n"
    assert [*own().generate_samples(*given)][1] == {"inputs": "two", "targets": "two"}
    prefix = translate.compile_data(tmp_path, source, "out")
    assert [open(f"{prefix}.lang{n}").read() for n in (1, 2)] == ["one\ntwo\n"] * 2
    with pytest.raises(UserError, match="is not supported: leave it out"):
        translate.compile_data(tmp_path, [], "out", ["txt"])


def test_a_context_is_stored(tmp_path):
    class Answers(text_problems.QuestionAndContext2TextProblem):
        is_generate_per_split, approx_vocab_size = True, 50
        dataset_splits = [{"split": "train", "shards": 1}]

        def generate_samples(self, data_dir, tmp_dir, split):
            yield {"inputs": "a", "context": "b", "targets": "c"}

    Answers().generate_data(tmp_path, tmp_path)
    vocab = Answers().feature_encoders(tmp_path)["context"]
    stored = {"inputs": "a", "context": "b", "targets": "c"}.items()
    stored = {field: [*vocab.encode(text), 1] for field, text in stored}
    assert [*stored_examples(tmp_path / "answers-train-00000-of-00001")] == [stored]
    assert vocab.decode([2]) == "<EOQ>"


def test_other_fields_of_ids_are_stored_and_only_the_vocabulary_encodes(tmp_path):
    class Marked(text_problems.Text2TextProblem):
        is_generate_per_split, vocab_type = True, text_problems.VocabType.CHARACTER
        dataset_splits = [{"split": "train", "shards": 1}]

        def feature_encoders(self, data_dir):  # of models, not of shards
            return dict.fromkeys(("inputs", "targets", "marks"), text_encoder.RealEncoder())

        def generate_samples(self, data_dir, tmp_dir, split):
            sample = {"note": "not of ids", "weights": [0.5]}
            for n in (2, 3):  # one dictionary, changed
                marks = [n, random.randrange(9)]
                yield sample.update(inputs="a" * n, targets="b", marks=marks) or sample

    Marked().generate_data(tmp_path, tmp_path)
    examples = stored_examples(tmp_path / "marked-train-00000-of-00001")
    a, b, seeded = 99, 100, random.Random(429459)  # T2T's --random_seed
    assert sorted(examples, key=lambda example: example["marks"]) == [
        {"inputs": [a] * n + [1], "targets": [b, 1], "marks": [n, seeded.randrange(9)]}
        for n in (2, 3)
    ]


def test_a_set_says_what_has_no_effect_and_what_is_not_supported(capsys):
    settings = importlib.import_module("tensor2tensor.layers.common_hparams")
    from_models = importlib.import_module("tensor2tensor.models.transformer").transformer_tiny

    @settings.register_hparams
    def with_lists():
        hp = from_models()
        hp.parse("sampling_method=random").pretrained_model_dir = "/run"
        hp.add_hparam("stages", ("x",))
        return hp.parse("stages=[a,b]").parse_json(hp.to_json(indent=1))

    @settings.register_hparams
    def withWeights():
        hp = settings.basic_params1()
        hp.weights_fn["targets"] = len
        return hp

    assert registry.hparams("with_lists").stages == ("a", "b")
    wanted = "warning: with_lists sets pretrained_model_dir, sampling_method, without effect here"
    assert capsys.readouterr().err.splitlines() == [f"{wanted} (t2t-decoder samples)"]
    with pytest.raises(UserError, match=r"weights_fn is not supported: it must be empty"):
        registry.hparams("with_weights")


def test_a_file_of_settings_changes_those_of_the_set(tmp_path):
    path = write_lines(tmp_path / "hparams.json", ['{"num_heads": 2, "old_setting": 1}'])
    trainer_lib = importlib.import_module("tensor2tensor.utils.trainer_lib")
    made = trainer_lib.create_hparams("transformer_tiny", None, hparams_path=str(path))
    assert (made.num_heads, "old_setting" in made) == (2, False)


def test_assigning_a_constant_of_t2t_gives_a_warning(capsys, monkeypatch):
    monkeypatch.setattr(text_encoder, "NUM_RESERVED_TOKENS", 3)
    assert "text_encoder.NUM_RESERVED_TOKENS has no effect" in capsys.readouterr().err


def test_hooks_see_settings_and_class_names_are_labels(tmp_path):
    class Named(text_problems.Text2ClassProblem):
        is_generate_per_split, vocab_type = True, text_problems.VocabType.CHARACTER
        dataset_splits, num_classes = [{"split": "train", "shards": 1}], 2

        def feature_encoders(self, data_dir):
            return {"inputs": self.get_or_create_vocab(data_dir, None, force_get=True)}

        def class_labels(self, data_dir):
            return ["no", "yes"]

        def hparams(self, defaults, model_hparams):
            super().hparams(defaults, model_hparams)
            self.seen = model_hparams.hidden_size, model_hparams.data_dir

        def generate_samples(self, data_dir, tmp_dir, split):
            label = text_encoder.ClassLabelEncoder(self.class_labels(data_dir)).encode("yes")
            yield {"inputs": "a", "label": label}

    named = Named()
    named.generate_data(tmp_path, tmp_path)
    [example] = stored_examples(tmp_path / "named-train-00000-of-00001")
    assert example["targets"] == [1]
    assert named.get_hparams(None, tmp_path).vocab_size["targets"] == 2
    assert named.seen == (512, str(tmp_path))
    assert named.get_feature_encoders(tmp_path)["targets"].decode(np.array([[[1]]])) == "yes"


@pytest.mark.parametrize("base", [text_encoder.TextEncoder, text_encoder.ByteTextEncoder])
def test_tensors_do_not_pass_by_an_encoder_of_ones_own(base):
    own = type("Own", (base,), {"encode": lambda self, s: [5], "vocab_size": 23})()
    with pytest.raises(UserError, match=r"an export .* tensors, which Own does not: use generated"):
        export_saved_model(search_model(), {"inputs": own, "targets": own}, "no directory")


def test_all_names_of_a_module():
    names = {}
    exec("from tensor2tensor.models.transformer import *", names)
    exec("from tensor2tensor.data_generators.text_encoder import *", names)
    assert (names["transformer_base_v2"]().num_heads, names["EOS_ID"]) == (8, 1)


@pytest.mark.parametrize(
    ("file", "is_users"),
    [
        ("/a/own/problems.py", True),
        ("/a/own/.venv/lib/keras/layers.py", False),
        ("/a/own/.venv/lib/theirs/problems.py", True),
        ("/a/owner/problems.py", False),
    ],
)
def test_files_of_the_user(monkeypatch, file, is_users):
    monkeypatch.setattr(t2t_modules, "_INSTALLED", ("/a/own/.venv/lib",))
    finder = t2t_modules._T2T()
    finder.roots |= {"/a/own", "/a/own/.venv/lib/theirs"}
    assert finder.is_users(file) is is_users
