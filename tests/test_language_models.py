"""Language models and classifiers by the commands: trained, evaluated, decoded, exported, gone on with."""

import json
import math
import shutil

import numpy as np
import pytest
import tensorflow as tf
import toy
from networks import small_model

import t2t_keras as t2t
from t2t_keras.checkpoints import load_model, read
from t2t_keras.decoding import DecodeSettings, Translator, beam_search, greedy, score
from t2t_keras.export.served import ServedLanguageModel
from t2t_keras.training.evaluation import _ClassF1

PACKAGE = """
from t2t_keras.data import Text2ClassProblem, Text2SelfProblem, VocabType
from t2t_keras.registry import register_problem

class Toy:
    is_generate_per_split = True
    vocab_type = VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 1}, {"split": "dev", "shards": 1}]

@register_problem
class ToySelf(Toy, Text2SelfProblem):
    def generate_samples(self, data_dir, tmp_dir, split):
        return ({"targets": "ab " * (1 + n % 3)} for n in range(60 if split == "train" else 6))

@register_problem
class ToyPacked(ToySelf):
    packed_length = 24

@register_problem
class ToyClass(Toy, Text2ClassProblem):
    num_classes = 2
    def class_labels(self, data_dir=None):
        return ["odd", "even"]
    def generate_samples(self, data_dir, tmp_dir, split):
        for n in range(60 if split == "train" else 6):
            yield {"inputs": "xy"[n % 2] * (2 + n % 3), "label": n % 2}
"""
SIZES = {"num_hidden_layers": 1, "hidden_size": 16, "filter_size": 16, "batch_size": 64}
MODELS = {"self": "transformer", "packed": "transformer", "class": "transformer_encoder"}


class Run:
    """The directories of a toy, and the commands on it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "toy_package").mkdir()
        (folder / "toy_package" / "__init__.py").write_text(PACKAGE)

    def command(self, name, *arguments, **options):
        package = f"--t2t_usr_dir={self.folder / 'toy_package'}"
        return toy.command(name, package, *arguments, **options)

    def ran(self, name, *arguments, **options):
        return toy.succeeded(self.command(name, *arguments, **options))

    def train(self, kind, steps, to=None, **options):
        flags = {
            "problem": f"toy_{kind}",
            "model": MODELS[kind],
            "hparams": toy.hparams(**SIZES),
            "data_dir": self.folder / "data",
            "tmp_dir": self.folder,
            "output_dir": self.folder / (to or kind),
            "train_steps": steps,
            "local_eval_frequency": 2,
            **options,
        }
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        return self.command("train", "--generate_data", *arguments, eagerly=True)

    def decode(self, kind, text, **options):
        path = self.folder / "lines.txt"
        path.write_text(text)
        flags = {"output_dir": self.folder / kind, "decode_to_file": "-", **options}
        mode = flags.pop("mode", "decode_from_file")
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        return self.ran("decode", f"--{mode}={path}", *arguments, eagerly=True).stdout.splitlines()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = Run(tmp_path_factory.mktemp("toy"))
    for kind in MODELS:
        toy.succeeded(made.train(kind, 4))
    t2t.registry.import_user_directory(str(made.folder / "toy_package"))
    return made


def figures(run, kind):
    lines = (run.folder / kind / "evaluations.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def ids_of(text):
    return np.array([[*t2t.text.ByteTextEncoder().encode(text), 1]], np.int32)


@pytest.mark.parametrize("kind", ["self", "packed"])
def test_perplexities_are_of_all_words_and_characters(run, kind):
    """By hand: dev has the lines "ab", "ab ab" and "ab ab ab" twice, written "ab ", "ab ab ", ..."""
    last = figures(run, kind)[-1]
    lines = ["ab " * (1 + n % 3) for n in range(6)]
    tokens = sum(len(line) + 1 for line in lines)
    words = sum(len(line.split()) + 1 for line in lines)
    nats = last["loss"] * tokens
    assert last["perplexity"] == pytest.approx(math.exp(last["loss"]))
    assert last["word_perplexity"] == pytest.approx(math.exp(nats / words))
    assert last["character_perplexity"] == pytest.approx(math.exp(last["loss"]))  # bytes


@pytest.mark.parametrize("options", [{}, {"xla": True}])
def test_padding_inside_a_prompt_is_forced(options):
    """As in T2T, whose `partial_targets` hold it: what follows is the best that the whole network finds."""
    model = small_model(source_vocab=None, spread=3.0)
    prompts = np.array([[5, 0, 7], [4, 0, 0]], np.int32)
    ids, scores = greedy(model, prompts, extra_length=4, **options)
    for row, prompt in enumerate(([5, 0, 7], [4])):
        found = ids[row, :4].numpy()
        logits = model({"targets": np.array([[*prompt, *found]])})
        log_p = tf.nn.log_softmax(logits[0, len(prompt) :])
        np.testing.assert_array_equal(np.argmax(log_p, -1), found)
        assert np.max(log_p, -1).sum() == pytest.approx(float(scores[row]), rel=1e-4)
    settings = DecodeSettings(beam_size=2, return_beams=True, **options)
    assert not np.any(t2t.decoding.search(model, prompts, settings, max_lengths=[3, 1]).lengths)


def test_f1_is_the_mean_over_classes():
    """By hand: class 0 has precision 2/3 and recall 1, class 1 1 and 1/2; class 2 is predicted in vain."""
    f1 = _ClassF1()
    f1.pairs = [np.array([[0, 0, 1], [0, 0, 0]]), np.array([[1, 1], [1, 2]])]
    scores = [2 * 2 / (2 + 3), 2 * 1 / (3 + 1), 0.0]
    assert f1.metrics(0.0, None)["f1"] == pytest.approx(100 * sum(scores) / 3)


@pytest.mark.parametrize("kind", ["self", "class"])
def test_eval_prints_what_training_has_printed(run, kind):
    flags = (f"--output_dir={run.folder / kind}", "--min_steps=4", "--xla")
    done = run.ran("eval", *flags, eagerly=True)
    assert done.stderr.startswith("ignoring --xla: only translations are decoded")
    last = figures(run, kind)[-1]
    assert f"step 4: dev loss {last['loss']:.4f}  accuracy {last['accuracy']:.4f}" in done.stdout
    figure = {
        "self": f"character {last.get('character_perplexity', 0):.4f}",
        "class": f"F1 {last.get('f1', 0):.2f}",
    }
    assert figure[kind] in done.stdout


def test_continuations_and_scores_of_lines(run):
    model = load_model(str(run.folder / "self"))
    prompts = ["ab a", "b", ""]
    text = "".join(f"{prompt}\n" for prompt in prompts)
    lines = run.decode("self", text, decode_hparams="beam_size=1,extra_length=4")
    encoder = t2t.text.ByteTextEncoder()
    rows = [encoder.encode(prompt) for prompt in prompts]
    ids, _ = greedy(model, [[*row, *[0] * (4 - len(row))] for row in rows], extra_length=4)
    assert lines == [encoder.decode(t2t.ids.until_eos(row)) for row in ids.numpy()]
    lone = run.decode("self", "\n", decode_hparams="beam_size=1,extra_length=4,t2t_batches=true")
    assert lone == lines[2:]  # as in T2T, a prompt without tokens is no longer
    scores = [float(line) for line in run.decode("self", "ab a\nx\tb\n", mode="score_file")]
    for row, loss in zip(rows, scores, strict=False):
        log_p = float(score(model, None, np.array([[*row, 1]]))[0])
        assert -log_p / (len(row) + 1) == pytest.approx(loss, abs=1e-5)
    with pytest.raises(t2t.errors.UserError, match="has no inputs"):
        score(model, rows[:1], [[2, 1]])


def test_prompts_are_those_of_tensor2tensor(run, eagerly):
    """Its `_get_language_modeling_inputs` strips nothing and adds a space to final punctuation."""
    model, encoder = load_model(str(run.folder / "self")), t2t.text.ByteTextEncoder()
    settings = DecodeSettings(beam_size=2, extra_length=4)
    prompts = {"b,": "b, ", "b!": "b! ", " b ": " b ", "b": "b"}
    wanted = [
        float(beam_search(model, [encoder.encode(text)], extra_length=4, beam_size=2)[1][0, 0])
        for text in prompts.values()
    ]
    found = Translator(model, {"targets": encoder}, settings).translate(list(prompts))
    assert [line.scores[0] for line in found] == pytest.approx(wanted, abs=1e-5)
    settings = DecodeSettings(beam_size=2, extra_length=4, max_input_size=3)
    [cut] = Translator(model, {"targets": encoder}, settings, [].append).translate(["xxb,"])
    assert cut.scores[0] == pytest.approx(wanted[0], abs=1e-5)
    served = ServedLanguageModel(model, {"targets": encoder}, settings)
    scores = served.complete(tf.constant(["xxb,", *[*prompts][1:]]))["scores"].numpy()[:, 0]
    assert scores == pytest.approx(wanted, abs=1e-5)


def test_probabilities_of_classes_and_of_their_export(run):
    text, settings = "xxx\nyy\n\n", "return_beams=true,write_beam_scores=true"
    found = [line.split("\t") for line in run.decode("class", text, decode_hparams=settings)]
    assert all({row[0], row[2]} == {"odd", "even"} for row in found)
    assert all(float(row[1]) >= float(row[3]) for row in found)
    assert all(float(row[1]) + float(row[3]) == pytest.approx(1, abs=0.011) for row in found)
    assert [row[0] for row in found] == run.decode("class", text)
    model = load_model(str(run.folder / "class"))
    alone = [model({"inputs": ids_of(line)}) for line in text.splitlines()]
    assert [row[0] for row in found] == [["odd", "even"][int(np.argmax(each))] for each in alone]


def test_exports_answer_as_the_commands_do(run):
    """The search of the language model is compiled by XLA there."""
    served = {}
    for kind in ("self", "class"):
        settings = "--decode_hparams=beam_size=1,extra_length=4,sampling_temp=3,xla=true"
        done = run.ran("export", f"--output_dir={run.folder / kind}", "--nowarm_up", settings)
        unused = "sampling_temp, xla" if kind == "class" else "warning: sampling_temp"
        assert f"{unused}: no effect in this export\n" in done.stderr
        served[kind] = tf.saved_model.load(str(run.folder / kind / "export" / "1")).signatures
    text = tf.constant(["ab a", "b", ""])
    completed = served["self"]["serving_default"](text=text)["completion"].numpy()
    found = [text.decode() for text in completed]
    scored = served["self"]["score"](text=text)
    loss = (-scored["log_probability"].numpy() / scored["tokens"].numpy()).tolist()
    classes = served["class"]["classify"](text=tf.constant(["xxx", "yy", ""]))
    labels = [row[0].decode() for row in classes["labels"].numpy()]
    assert [label.decode() for label in classes["label"].numpy()] == labels
    greedily = {"decode_hparams": "beam_size=1,extra_length=4"}
    assert found == run.decode("self", "ab a\nb\n\n", **greedily)
    scores = [float(line) for line in run.decode("self", "ab a\nb\n\n", mode="score_file")]
    assert loss == pytest.approx(scores, abs=1e-5)
    assert labels == run.decode("class", "xxx\nyy\n\n")
    flags = (f"--decode_from_file={run.folder}/lines.txt", "--decode_to_file=-", "--raw", "--xla")
    done = run.command("decode", f"--output_dir={run.folder / 'class'}", *flags, eagerly=True)
    assert done.stderr.startswith("ignoring --raw, --xla: a class is one label")
    assert np.sum(classes["probabilities"], axis=1) == pytest.approx(1)
    one, other = (t2t.load(str(run.folder / kind / "export")) for kind in ("class", "self"))
    assert one.translate(["xxx", "yy"]) + other.translate(["b"]) == [*labels[:2], found[1]]


@pytest.mark.parametrize("kind", ["packed", "class"])
def test_a_run_in_two_parts_is_the_same_bit_for_bit(run, kind):
    """The second part goes on from what the run had written at step 2."""
    parts = run.folder / f"{kind}_parts"
    shutil.copytree(run.folder / kind, parts)
    for path in (*parts.glob("model.ckpt-4*"), parts / "checkpoint"):
        path.unlink()
    done = run.train(kind, 4, to=parts.name)
    assert "resuming from step 2" in done.stderr, done.stderr
    whole, again = (read(str(run.folder / name / "model.ckpt-4")) for name in (kind, parts.name))
    assert whole.keys() == again.keys()
    for name in whole:
        if not name.startswith("run/"):
            assert np.asarray(whole[name]).tobytes() == np.asarray(again[name]).tobytes(), name


@pytest.mark.parametrize(
    ("kind", "flags", "message"),
    [
        ("class", {"model": "transformer"}, "toy_class classifies texts: give --model=transformer_encoder"),
        ("self", {"model": "transformer_encoder"}, "classifies texts, but toy_self has no classes"),
        ("self", {"best_metric": "bleu"}, "toy_self has no bleu: choose loss or accuracy"),
        ("class", {"attention_images": True}, "--attention_images needs pairs of texts: toy_class has none"),
    ],
)  # fmt: skip
def test_bad_input_in_training_is_one_line(run, kind, flags, message):
    assert message in toy.complaint(run.train(kind, 4, to="bad", **flags))


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("decode", ["--output_dir={}/class", "--score_file={}/lines"], "--score_file is for pairs of texts"),
        ("decode", ["--output_dir={}/self", "--decode_from_file={}/lines", "--decode_prefix_file={}/lines"], "add the prefix to them"),
        ("decode", ["--output_dir={}/class", "--decode_from_file={}/lines", "--decode_prefix_file={}/lines"], "classes have no prefixes"),
        ("decode", ["--output_dir={}/self", "--problem=toy_class", "--decode_from_file={}/lines"], "toy_class classifies texts"),
        ("inspect", ["attention", "--output_dir={}/class", "--text=xx"], "a picture of attention needs a model with an encoder and a decoder"),
        ("export", ["--output_dir={}/self", "--format=ctranslate2"], "this is a language model"),
        ("export", ["--output_dir={}/class", "--default_signature=translate"], "default_signature must be one of classify, got 'translate'"),
    ],
)  # fmt: skip
def test_bad_input_on_a_model_is_one_line(run, command, flags, message):
    (run.folder / "lines").write_text("odd\n")
    flags = [flag.format(run.folder) for flag in flags]
    more = ["--decode_to_file=-"] if command == "decode" else []
    assert message in toy.complaint(run.command(command, *flags, *more, eagerly=True))


def test_data_is_described(run):
    flags = [f"--data_dir={run.folder / 'data'}", "--hparams=transformer_tiny"]
    for kind, message in (("self", "targets: ab ab"), ("class", "targets: even")):
        done = run.command("inspect", "data", f"--problem=toy_{kind}", "--num_examples=6", *flags)
        assert message in done.stdout, done.stderr
    folders = [f"--data_dir={run.folder / 'data'}", f"--tmp_dir={run.folder}"]
    done = run.command("datagen", "--problem=toy_packed,toy_class", *folders)
    assert "60 targets (1.0 per pair)" in done.stdout, done.stderr


def test_an_ensemble_classifies_by_the_mean_probability(run):
    both = [str(run.folder / "class" / f"model.ckpt-{step}") for step in (2, 4)]
    loaded = t2t.load(both)
    ids = ids_of("yyy")
    logits = np.stack([load_model(path)({"inputs": ids})[0] for path in both])
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    settings = t2t.decoding.DecodeSettings(return_beams=True)
    found, _ = loaded.translator(settings).translate(["yyy", "x" * 9])
    assert found.scores == pytest.approx(sorted(p.mean(0), reverse=True), rel=1e-4)


def test_checkpoints_of_a_classifier_are_averaged(run):
    to = run.folder / "averaged" / "model.ckpt"
    flags = [f"--prefix={run.folder / 'class'}", "--num_last_checkpoints=2", f"--output_path={to}"]
    toy.ran("avg", *flags)
    first, last = (read(str(run.folder / "class" / f"model.ckpt-{n}")) for n in (2, 4))
    mean = read(str(to))
    names = [name for name in mean if name.startswith("transformer_encoder/")]
    assert len(names) > 10
    for name in names:
        np.testing.assert_allclose(mean[name], (first[name] + last[name]) / 2, atol=1e-6)
    assert run.decode("averaged", "xx\n")[0] in ("odd", "even")
