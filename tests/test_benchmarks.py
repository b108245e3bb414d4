"""The benchmarks run, and check what they compare."""

import importlib.metadata
import importlib.util
import json
import re
import statistics
from pathlib import Path

import decode
import decode_profile
import networks
import pytest
import report
import toy

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_bytes((ROOT / "LICENSE").read_bytes() + (ROOT / "README.md").read_bytes())
    return path


def run(name, *args, code=0):
    done = toy.python(ROOT / "benchmarks" / f"{name}.py", *args)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(
    ("name", "printed"),
    [("vocabulary", "Same subtokens"), ("encode", "T2T in plain Python"), ("text_in_graph", "map")],
)
def test_vocabularies_and_ids_equal_those_of_plain_python(text, name, printed):
    assert printed in run(name, text, "--lines=150", "--target_size=200", "--repeats=1").stdout


def test_says_how_few_lines_there_are(text):
    done = run("encode", text, text, "--lines=1000000", code=1)
    assert "different lines; --lines=1000000 wants more" in done.stderr


def test_training_steps_are_measured_and_other_libraries_named(tmp_path):
    table = tmp_path / "steps.json"
    sizes = ("--shapes=tiny:2x8", "--vocab=300", "--steps=2", "--precisions=float32")
    ways = ("--ways=ours,marian,opennmt", "--opennmt_python=false")
    done = run("train_step", *sizes, *ways, f"--json={table}")
    assert "Marian, PyTorch left out: no Python given" in done.stderr
    assert "OpenNMT-tf tiny 2x8 float32 left out: exit code 1" in done.stderr
    peak, ours, failed = json.loads(table.read_text())["results"]
    assert peak["rates"][0] > 1e9
    assert failed["failure"]
    assert len(ours["seconds"]) == 2
    row_of_ours = r"^\| tiny \| 2 x 8 \| float32 \| t2t_keras \| ([\d,]+) "
    (row,) = re.findall(row_of_ours, done.stdout, re.M)
    rate = ours["tokens"] / statistics.median(ours["seconds"])
    assert int(row.replace(",", "")) == pytest.approx(rate, abs=0.5)
    # Of a layer: 4 matrices of D x D in attention, 2 in feed-forward, and the decoder's other attention.
    weights = 2 * (4 + 4 + 4) * 128**2 + 2 * (2 + 2) * 128 * 512 + 300 * 128
    assert ours["flops_per_position"] == 3 * weights


@pytest.mark.parametrize("beam", [1, 3])
def test_the_parts_of_a_step_of_decoding(beam):
    model = networks.small_model("num_hidden_layers=2")
    d, f, layers, batch, s = model.hp.hidden_size, model.hp.filter_size, 2, 2, 24
    parts = decode_profile.parts(model, batch, beam)
    for part, x, _ in parts.values():
        assert part(x).shape == x.shape
    counts = {name: decode_profile.number(read) for name, (_, _, read) in parts.items()}
    assert counts["self-attention"] == layers * (4 * d * d + 2 * batch * s * beam * d)
    assert counts["attention to the source"] == layers * (2 * d * d + 2 * batch * s * d)
    assert counts["feed-forward"] == layers * (2 * d * f + f + d)
    assert counts["logits"] == 23 * d


def test_a_step_of_decoding_is_profiled(monkeypatch, capsys):
    monkeypatch.setattr(decode, "measured", lambda *given: decode_profile.profiled(given[-1]))
    sizes = ["--model=tiny", "--vocab=300", "--batches=1", "--beams=2"]
    monkeypatch.setattr("sys.argv", ["decode", "--profile", *sizes])
    decode.main()
    assert capsys.readouterr().out.count("\n| 1 | 2 | ") == 6


# The page of all of them

PAGE = """# Performance

<!-- measured: text_encoding -->
old figures
<!-- end of text_encoding -->
What stays.
<!-- measured: translation -->
figures of translation
<!-- end of translation -->
"""


def test_a_page_gets_what_was_measured_and_keeps_the_rest(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    done = run("report", page, "--quick", "--only=translation")
    assert "translation left out: give --text" in done.stderr
    run("report", page, "--quick", "--only=text_encoding", "--text", text)
    before, rest = page.read_text().split("<!-- measured: text_encoding -->")
    section, after = rest.split("<!-- end of text_encoding -->")
    assert (before, after) == (PAGE[: len(before)], PAGE[-len(after) :])
    assert "old figures" not in section
    command, where, *tables = section.strip().split("\n\n")
    assert command.startswith("`python benchmarks/encode.py lines.txt --lines=50000 ")
    assert command.endswith(" --lines=150 --target_size=200 --repeats=1`")
    assert re.search(r"^\d+ cores of .+ GB of memory, \w+; \d{4}-\d\d-\d\d, load ", where)
    assert f"tensorflow {importlib.metadata.version('tensorflow')}" in where
    assert "| t2t_keras | " in tables[-1]
    for library, name in {"sentencepiece": "SentencePiece", "tokenizers": "tokenizers"}.items():
        present = importlib.util.find_spec(library)
        assert (f"| {name} | " if present else f"{name} left out: not installed") in section


def test_a_section_is_where_both_its_marks_are():
    section = "<!-- measured: translation -->\n\nnew\n\n<!-- end of translation -->\n"
    assert report.replaced(PAGE, "translation", "new\n").endswith(section)
    for wrong in (PAGE.replace("end of translation", "end"), PAGE + PAGE):
        with pytest.raises(ValueError, match="needs one <!-- measured: translation --> and below"):
            report.replaced(wrong, "translation", "new")


def test_the_page_has_a_section_for_each_benchmark():
    page = (ROOT / "docs" / "performance.md").read_text()
    for name in report.BENCHMARKS:
        report.replaced(page, name, "")


def test_mistakes_are_reported_before_anything_is_measured(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    for argument, wanted in (
        ("--only=readin", "'readin' is not one of text_encoding"),
        ("--only=training_step", "needs one <!-- measured: training_step -->"),
    ):
        assert wanted in run("report", page, argument, code=2).stderr.splitlines()[-1]
        assert page.read_text() == PAGE


# One device


def test_steps_on_jax_are_measured_and_say_where():
    pytest.importorskip("jax")
    sizes = ("--models=tiny", "--rows=2", "--length=8", "--vocab=300", "--steps=2")
    done = run("device_steps", *sizes, "--precisions=float32", "--kinds=decode")
    assert "PyTorch, torch.compile left out: no Python given" in done.stderr
    assert "no GPU was at hand" in done.stdout or "On NVIDIA" in done.stdout
    row = r"^\| decoding \| tiny \| 2 x 8 \| float32 \| t2t_keras, JAX \| [\d,]+ \|"
    assert re.search(row, done.stdout, re.M)
