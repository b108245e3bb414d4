"""Mistakes in a call or in flags that used to pass without a word: each is an error in one line."""

import json
import math

import numpy as np
import pytest
import test_trainer
import toy
from networks import search_model, small_model

from t2t_keras import Transformer, checkpoints, load, metrics, registry, text
from t2t_keras.data import Text2TextProblem, dataset
from t2t_keras.data.generation import CleaningRules
from t2t_keras.decoding import Translator, beam_search, greedy, sample, score, search
from t2t_keras.errors import UserError
from t2t_keras.export import export_saved_model
from t2t_keras.inspection.alignment import Heads, PairAligner, from_pharaoh
from t2t_keras.network_settings import check_settings
from t2t_keras.serving import SavedModel, TextClient
from t2t_keras.training.evaluation import EvaluationHistory


class Unfinished(Text2TextProblem):
    vocab_type = "subword"


ONE_TEXT = {
    "translate": lambda: Translator.translate(None, "two cups"),
    "prefixes": lambda: Translator.translate(None, ["two"], "a"),
    "client": lambda: TextClient.translate(None, "two cups"),
    "bytes": lambda: TextClient.translate(None, b"two cups"),
    "bleu": lambda: metrics.bleu("a b", "a b"),
    "hypotheses": lambda: metrics.bleu(["a b"], "a b"),
    "rouge": lambda: metrics.rouge(["a b"], ["a b"]),
    "subwords": lambda: text.SubwordTextEncoder.build_from_generator("a b c", 20),
    "SentencePiece": lambda: text.SentencePieceEncoder.build_from_generator("a b c", 20),
    "words": lambda: text.TokenTextEncoder(vocab_list="abc"),
}


@pytest.mark.parametrize("call", ONE_TEXT.values(), ids=ONE_TEXT)
def test_one_text_is_not_many_letters(call):
    with pytest.raises(UserError, match=r"takes a list of texts, got .*: put it in a list"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Translator.translate(None, ["a", None]), "lines takes strings, got None in place 2"),
        (lambda: Translator.translate(None, ["a"], ["b", "c"]), "prefixes must be as many as lines, 1"),
        (lambda: Translator.translate(None, ["a"], phrases=["b"]), "phrases takes a list of texts"),
        (lambda: metrics.bleu(["a"], [b"a"]), "hypotheses takes strings, got b'a' in place 1"),
        (lambda: beam_search(search_model(), [[2, -1]]), r"must be ids \[B, S\], .* got -1"),
        (lambda: beam_search(search_model(), [[2.5, 1]]), r"must be ids \[B, S\], .* got 2.5"),
        (lambda: search(search_model(), [[2, 1]], "beam_size=1"), "options must be DecodeSettings, got"),
        (lambda: score(search_model(), [[2, 1]], [[99, 1]]), "targets must be ids .* got 99"),
        (lambda: Translator("run", {}), "model must be a Transformer or an Ensemble, got 'run'"),
        (lambda: Translator(search_model(), {}, {"xla": 1}), "settings must be DecodeSettings, got"),
        (lambda: Translator(search_model(), None), "encoders must be text encoders by side, got None"),
        (lambda: load(None), "path must be a path or a list of paths, got None"),
        (lambda: beam_search(search_model(), [2, 1]), r"must be ids \[B, S\], .* got shape \(2,\)"),
        (lambda: beam_search(search_model(), [[2, 1], [1]]), r"must be ids \[B, S\], padded with 0: "),
        (lambda: check_settings("transformer_base"), "hp must be settings, .* got 'transformer_base'"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_texts_or_of_ids_is_said(call, message):
    with pytest.raises(UserError, match=f"^[^\n]*{message}[^\n]*$"):
        call()


@pytest.mark.parametrize("kind", ["subword", None, "SUBWORD"])
def test_an_unknown_kind_of_vocabulary_is_not_bytes(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(Unfinished, "vocab_type", kind)
    with pytest.raises(UserError, match=r"vocab_type of unfinished must be one of .*subwords"):
        Unfinished().get_or_create_vocab(tmp_path, tmp_path)


def test_an_empty_name_is_not_the_newest_checkpoint(tmp_path):
    done = toy.command("avg", "--checkpoints=a,", f"--output_path={tmp_path / 'mean'}")
    assert "--checkpoints=a, has an empty name" in toy.complaint(done)


def test_a_loss_that_is_no_number_is_never_the_best(tmp_path):
    history = EvaluationHistory(str(tmp_path), 0)
    for step, loss in ((1, math.nan), (2, 3.0), (3, math.inf), (4, 2.5)):
        history.add(step, {"loss": loss})
        assert history.best("loss") == {1: None, 2: 2, 3: 2, 4: 4}[step]


def test_a_dev_loss_that_is_no_number_ends_the_run(data_dir, tmp_path, monkeypatch):
    """The advice names the newest checkpoint whose dev loss was a number."""
    from t2t_keras.training import evaluation

    losses = iter([3.0, math.nan])
    monkeypatch.setattr(
        evaluation.Evaluation,
        "__call__",
        lambda self, done=None: {"loss": next(losses), "accuracy": 0.0},
    )
    trainer = test_trainer.trainer(data_dir, tmp_path / "run", 6, local_eval_frequency=2)
    with pytest.raises(UserError, match="the loss of dev is nan after step 4") as caught:
        trainer.run()
    assert str(caught.value).endswith(f"(--warm_start_from={tmp_path / 'run' / 'model.ckpt-2'}).")
    assert (tmp_path / "run" / "best").read_text() == "model.ckpt-2\n"
    lines = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4]
    assert json.loads(lines[1])["loss"] is None


def test_float16_that_always_overflows_ends_the_run(data_dir, tmp_path, monkeypatch):
    from t2t_keras.training import train_step

    update = train_step.LossScale.update
    monkeypatch.setattr(train_step.LossScale, "update", lambda self, finite: update(self, False))
    monkeypatch.setattr(train_step, "FIRST_LOSS_SCALE", 8.0)
    engine = {"precision": "float16", "distribute": "none"}
    trainer = test_trainer.trainer(data_dir, tmp_path / "run", 60, engine=engine)
    assert "3,000 examples, " in trainer.description()[0]
    with pytest.raises(UserError, match=r"^gradients overflow in float16, nothing is learned"):
        trainer.run()


def test_a_run_says_how_many_examples_it_leaves_out(data_dir):
    from t2t_keras.data import Batches

    hp = registry.hparams(toy.hparams(max_length=6))
    batches = Batches(registry.problem(toy.PROBLEM), "train", str(data_dir), hp)
    left_out = 3000 - batches.examples
    assert left_out > 100
    said = f"{batches.examples:,} examples ({left_out:,} others are too long or too short), "
    assert said in batches.description()


LABELS = text.ClassLabelEncoder(["a", "b"])
NAME, IDS = "translate_ende_numbers", [[3, 4, 1], [5, 1, 0]]
REFUSED = {
    "max_ratio is nan": lambda: CleaningRules(max_ratio=math.nan),
    "class 5 is not one of 0 to 1": lambda: LABELS.decode([0, 5]),
    "class -1 is not one of": lambda: LABELS.decode([-1]),
    "classes need two or more different names": lambda: text.ClassLabelEncoder(["a", "b", "a"]),
    "invalid hparams set name '../x'": lambda: registry.register_hparams("../x")(lambda: None),
    "invalid problem name 'a/b'": lambda: registry.register_problem("a/b")(Unfinished),
    "line 3 has '1{60}'": lambda: from_pharaoh(f"0-0 {'1' * 5000}-2", "line 3"),
    "inputs must be .* from 0 to 22, got 23": lambda: greedy(small_model(), [[23]]),
    "prefix must be .* from 0 to 22, got 23": lambda: greedy(small_model(), IDS, prefix=[[23]]),
    "inputs must be ids": lambda: greedy(small_model(), ["abc"]),
    "prefix must be ids .* \\(3, 1\\)": lambda: greedy(small_model(), IDS, prefix=[[2], [3], [4]]),
    "max_lengths must be .* \\(3,\\)": lambda: greedy(small_model(), IDS, max_lengths=[1, 2, 3]),
    "this search takes no option 'beam_size'": lambda: greedy(small_model(), IDS, beam_size=4),
    "this search takes no option 'sampling_seed'": lambda: sample(None, IDS, sampling_seed=3),
    "problem must be a problem, as": lambda: dataset(NAME, "dev", "", None),
    "this search takes .*'max_lengths'": lambda: greedy(small_model(), IDS, max_length=4),
    "Transformer takes a dict, .* got shapes \\(2, 3\\), \\(3, 1\\)": lambda: score(small_model(), IDS, [[2]] * 3),
    "/ is a directory: name a checkpoint in it": lambda: checkpoints.save_t2t(None, "/"),
    "sources takes a list of texts": lambda: PairAligner(small_model(), {"inputs": LABELS, "targets": LABELS}).align("abc", "def"),
    "heads must be mean": lambda: Heads.parse("9" * 5000),
    "no checkpoint at a\0b": lambda: load("a\0b"),
    "no checkpoint at x{300}/y": lambda: load("x" * 300 + "/y"),
    "x{300} cannot be loaded": lambda: SavedModel("x" * 300),
    "The vocabulary x{900}": lambda: registry.problem(NAME).get_feature_encoders("x" * 5000),
    "TensorFlow would read .* as a glob pattern": lambda: export_saved_model(None, {}, "/tmp/run*[1]"),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_values_out_of_range(message):
    with pytest.raises(UserError, match=f"^{message}"):
        REFUSED[message]()


def test_no_prompts_have_no_continuations():
    hp = registry.hparams("transformer_test")
    model = Transformer(hp, source_vocab_size=None, target_vocab_size=20)
    for shape in ((0, 3), (0, 0)):
        ids, scores = beam_search(model, np.zeros(shape, np.int32), beam_size=2, extra_length=2)
        assert (len(ids), len(scores)) == (0, 0)
