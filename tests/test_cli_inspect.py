"""The command t2t-keras-inspect, run as users run it."""

import importlib.util
import sys

import golden
import numpy as np
import pytest
import toy

from t2t_keras import checkpoints, data, registry
from t2t_keras.decoding import beam_search
from t2t_keras.decoding.translator import until_eos
from t2t_keras.errors import UserError
from t2t_keras.inspection.attention import attention_weights
from t2t_keras.inspection.attention_figure import require_figure

SETTINGS = toy.hparams(min_length_bucket=4)
DRAWS = importlib.util.find_spec("matplotlib") is not None
ATTENTION = ("attention", "--data_dir=x", "--output_dir=.", "--text=a")


def inspect(data_dir, *arguments):
    given = (f"--problem={toy.PROBLEM}", f"--data_dir={data_dir}", f"--hparams={SETTINGS}")
    return toy.ran("inspect", "data", *given, *arguments)


def test_tells_what_batches_look_like_and_draws_their_lengths(data_dir, tmp_path):
    plot = [f"--plot={tmp_path / 'lengths.svg'}"] if DRAWS else []
    done = inspect(data_dir, "--num_examples=2", *plot)
    lines = done.stdout.splitlines()
    assert lines[0] == f"problem {toy.PROBLEM}, hparams transformer_tiny"
    assert lines[1].startswith("  train: 3,000 examples in text2text_tmpdir-train-00000-of-00100")
    shapes = data.bucket_shapes(registry.hparams(SETTINGS))
    (rows, shortest), _, (last_rows, longest) = shapes
    assert f"3 batch shapes, from {rows} x {shortest} to {last_rows} x {longest};" in done.stdout
    table = lines.index("rows x ids, pairs, padding:")
    cells = [line.split() for line in lines[table + 1 : table + 4]]
    assert [(int(words[0]), int(words[2])) for words in cells] == shapes
    assert sum(int(words[3].replace(",", "")) for words in cells) == 3000
    shown = [line.split(": ")[1] for line in lines if line.startswith(("  inputs:", "  targets:"))]
    assert len(shown) == 4
    for inputs, targets in zip(shown[::2], shown[1::2], strict=True):
        inputs, targets = (text.removesuffix("<EOS>") for text in (inputs, targets))
        assert targets == inputs[::-1] and len(inputs) > 2
    assert not DRAWS or "text2text_tmpdir, train" in (tmp_path / "lengths.svg").read_text()


def test_the_padding_it_tells_is_that_of_the_batches(data_dir):
    problem, hp = registry.problem(toy.PROBLEM), registry.hparams(SETTINGS)
    real = positions = 0
    for batch in data.dataset(problem, "dev", data_dir, hp):
        for ids in batch.values():
            real += int((ids.numpy() != 0).sum())
            positions += ids.numpy().size
    done = inspect(data_dir, "--split=dev", "--num_examples=999")
    assert f"all: {1 - real / positions:.1%} padding; a batch has" in done.stdout


def test_attention_of_a_checkpoint_of_t2t(tmp_path):
    checkpoint = golden.RELEASE / "model.ckpt-1"
    subtokens = ["<pad>", "<EOS>", *"_\\0123456789;u abc"]
    subtokens += [f"x{n}_" for n in range(8190 - len(subtokens))]
    path = tmp_path / "vocab.translate_ende_wmt8k.8192.subwords"
    path.write_text("".join(f"'{subtoken}'\n" for subtoken in subtokens))
    places = (f"--data_dir={tmp_path}", f"--checkpoint_path={checkpoint}")
    outputs = [f"--{kind}={tmp_path}/a.{kind}" for kind in ("npz", "html")]
    if DRAWS:
        outputs += [f"--plot={tmp_path}/a.svg", "--attention=encoder", "--layer=0", "--heads=1"]
        outputs += ["--words=abc"]
    given = ("--text=x7 abc x9", "--decode_hparams=beam_size=2,extra_length=1", *outputs)
    done = toy.ran("inspect", "attention", "--problem=translate_ende_wmt8k", *places, *given)
    model = checkpoints.load_model(str(checkpoint), target_space_id=0)
    encoders = registry.problem("translate_ende_wmt8k").get_feature_encoders(tmp_path)
    source = [*encoders["inputs"].encode("x7 abc x9"), 1]
    [[ids]] = beam_search(model, [source], beam_size=2, extra_length=1)[0].numpy()
    text = encoders["targets"].decode(until_eos(ids))
    stored = np.load(tmp_path / "a.npz")
    assert (str(stored["target_text"]), str(stored["tree"])) == (text, "")
    assert str(stored["title"]) == "translate_ende_wmt8k, model.ckpt-1"
    assert stored["source_tokens"].tolist() == ["x7", "a", "b", "c", "·", "x9", "</s>"]
    assert stored["source_words"].tolist() == [0, 1, 1, 1, 1, 2, 3]
    for kind, weights in attention_weights(model, source, ids[ids != 0]).items():
        np.testing.assert_allclose(stored[kind], weights, atol=1e-6)
    assert done.stdout.splitlines()[:2] == ["source: x7 abc x9", f"target: {text}"]
    title = "<title>Attention: translate_ende_wmt8k, model.ckpt-1</title>"
    assert title in (tmp_path / "a.html").read_text()
    page = (*places, "--problem=translate_ende_wmt8k", "--text=abc", "--target_text=x7 abc")
    assert "page: attention.html" in toy.ran("inspect", "attention", *page, cwd=tmp_path).stdout
    if DRAWS:
        figure = (tmp_path / "a.svg").read_text()
        assert "encoder self-attention, layer 0" in figure and "<!-- head 0 -->" not in figure
        own = (f"--plot={tmp_path}/b.svg", "--subwords", "--words=abc")
        said = toy.complaint(toy.command("inspect", "attention", *page, *own))
        assert "'abc' is not a query; queries are x7, a, b, c" in said


def test_figures_without_matplotlib_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"pip install 't2t-keras\[plot\]'"):
        require_figure("a.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("attention", "--data_dir=x", "--output_dir=."), "--text is missing"),
        (("attention", "--split=dev"), "--split is for t2t-keras-inspect data: it has no effect on attention"),
        (("data", "--split=validation"), "should be one of <train|dev|test>"),
        (("data", "--text=a"), "--text is for t2t-keras-inspect attention: it has no effect on data"),
        (("data", "--html=a"), "--html is for t2t-keras-inspect attention"),
        ((*ATTENTION, "--heads=1"), "--heads is for --plot=FILE, which is missing"),
        ((*ATTENTION, "--heads=a", "--plot=a.png"), "--heads takes numbers from 0"),
        ((*ATTENTION, "--html=/none/a.html"), "--html=/none/a.html: there is no directory /none"),
        ((*ATTENTION, "--npz=/"), "--npz=/ is a directory"),
        ((*ATTENTION, "--html=/dev/stdout"), "--html=/dev/stdout is a pipe or device: name a file"),
        ((*ATTENTION, "--target_text=b", "--decode_hparams=alpha=1"), "--target_text is given"),
        (("dta",), "unknown action 'dta'. Did you mean 'data'? Use one of data, "),
        ((), "unknown action ''"),
        (("data", "x"), "unexpected argument 'x'"),
        (("data",), "--data_dir is missing"),
        (("data", "--data_dir=x", "--plot=~/none/a.png"), "there is no directory /"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(arguments, message):
    assert message in toy.complaint(toy.command("inspect", *arguments))
