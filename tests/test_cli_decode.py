"""t2t-keras-decode as its users run it: files, pipes, stops, scores, ensembles, and mistakes."""

import functools
import io
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import networks
import pytest
import toy

from t2t_keras import checkpoints, cli, registry
from t2t_keras.cli import options
from t2t_keras.cli.decode import translate_interactively
from t2t_keras.decoding import DecodeSettings, Ensemble, PairScorer, Translator
from t2t_keras.decoding.translator import Line
from t2t_keras.inspection.alignment import PairAligner, to_pharaoh


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Data, and runs `one` and `two` of random models."""
    directory = tmp_path_factory.mktemp("toy")
    toy.generate(directory)
    size = encoders(directory)["inputs"].vocab_size
    for seed, name in enumerate(("one", "two")):
        random = {"seed": seed, "spread": 2.0, "ending": 1.0}
        model = networks.small_model("", size, size, **random)
        run = {**model.description(), "problem": toy.PROBLEM}
        checkpoints.write_settings(str(directory / name), model.hp, run)
        checkpoints.save_t2t(model, str(directory / name / "model.ckpt-7"))
    return directory


def encoders(base):
    return registry.problem(toy.PROBLEM).get_feature_encoders(base / "data")


def load(base, name="one"):
    return checkpoints.load_model(str(base / name))


def arguments(base, hparams, *flags, run="one"):
    places = (f"--data_dir={base / 'data'}", f"--checkpoint_path={base / run}")
    return [*places, f"--decode_hparams={hparams}", *map(str, flags)]


def decode(base, hparams, *flags, run="one", **options):
    return toy.ran("decode", *arguments(base, hparams, *flags, run=run), **options)


def refusal(base, *flags, **options):
    return toy.complaint(toy.command("decode", *arguments(base, "", *flags, **options)))


def translations(base, lines, model=None, prefixes=None, **settings):
    translator = Translator(model or load(base), encoders(base), DecodeSettings(**settings))
    return [t.texts[0] for t in translator.translate(lines, prefixes)]


def test_a_file_with_all_that_may_be_wrong_in_it(base):
    """The name is T2T's; bytes that are no text, long lines and empty ones keep their place."""
    source = base / "source.txt"
    source.write_bytes(b"a b c\n\n\xffa b\na b c d e f g h a b c d e f\nno newline: a")
    flag = f"--decode_from_file={source}"
    done = decode(base, "beam_size=2,extra_length=3,max_input_size=12", flag)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert warnings[0].startswith(f"warning: line 3 of {source} is not UTF-8")
    assert [line.split(" has ")[0][-6:] for line in warnings[1:]] == ["line 4", "line 5"]
    [target] = base.glob("source.txt.transformer.*")
    name = f"source.txt.transformer.transformer_base.{toy.PROBLEM}.beam2.alpha0.6.decodes"
    assert target.name == name
    assert done.stdout == f"5 translations in {target}\n"
    lines = ["a b c", "", "a b", "a b c d e f g h a b c d e f", "no newline: a"]
    settings = {"beam_size": 2, "extra_length": 3, "max_input_size": 12}
    assert target.read_text().split("\n") == [*translations(base, lines, **settings), ""]


FORBID = """
import tensorflow as tf
from t2t_keras import registry

@registry.register_logits_processor
def forbid(token):
    return lambda logits, step: tf.where(tf.range(logits.shape[-1]) == int(token), -1e9, logits)
"""


def test_pipes_prefixes_ensembles_and_logits_processors(base):
    """A processor of the user's directory forbids the token that one translation begins with."""
    (base / "prefixes").write_text("c\n\nb a\n")
    (base / "own").mkdir()
    (base / "own" / "__init__.py").write_text(FORBID)
    registry.import_user_directory(str(base / "own"))
    lines, prefixes = ["a b", "c d e", "f"], ["c", "", "b a"]
    model = Ensemble([load(base, name) for name in ("one", "two")])
    settings = {"beam_size": 2, "extra_length": 3}
    free = translations(base, lines, model, prefixes, **settings)
    [token, *_] = [*encoders(base)["targets"].encode(free[1]), 1]  # or the end of sentence
    processor = f"forbid:{token}"
    wanted = translations(base, lines, model, prefixes, **settings, logits_processors=processor)
    assert wanted[1] != free[1]
    assert wanted[2].startswith("b a")

    done = decode(
        base,
        f"beam_size=2,extra_length=3,logits_processors={processor}",
        *(f"--t2t_usr_dir={base / 'own'}", f"--decode_prefix_file={base / 'prefixes'}"),
        "--decode_from_file=-",
        run=f"one,{base / 'two' / 'model.ckpt-7'}",
        input="\n".join(lines),
    )
    assert done.stdout.split("\n") == [*wanted, ""]


AS_BRACKETS = f"""
from t2t_keras.problems.translate_files import Text2textTmpdir
from t2t_keras.registry import register_problem

@register_problem("as_brackets")
class AsBrackets(Text2textTmpdir):
    def dataset_filename(self): return {toy.PROBLEM!r}
    def format_output(self, inputs, outputs): return "(TOP)"
"""


def test_raw_is_what_the_model_wrote(base, tmp_path):
    (tmp_path / "__init__.py").write_text(AS_BRACKETS)
    given = ["--problem=as_brackets", f"--t2t_usr_dir={tmp_path}", "--decode_from_file=-"]
    settings = "beam_size=1,extra_length=3"
    formed = decode(base, settings, *given, input="a b c\n")
    raw = decode(base, settings, *given, "--raw", input="a b c\n")
    assert formed.stdout == "(TOP)\n", formed.stderr
    assert raw.stdout.splitlines() == translations(base, ["a b c"], beam_size=1, extra_length=3)
    done = toy.ran("export", *arguments(base, settings, *given[:2]), f"--export_dir={tmp_path}/x")
    assert "an export lacks format_output of as_brackets, which decoding calls" in done.stderr


def test_xla_finds_the_same_and_another_precision_something(base):
    given = "beam_size=2,extra_length=3", "--decode_from_file=-"
    compiled, rounded = (
        decode(base, *given, flag, input="a b c\na\n", eagerly=True).stdout.splitlines()
        for flag in ("--xla", "--precision=bfloat16")
    )
    assert compiled == translations(base, ["a b c", "a"], beam_size=2, extra_length=3)
    assert len(rounded) == 2


def test_a_stopped_run_goes_on(base):
    """A signal ends with the code of a shell; what comes after is what would have come."""
    lines = toy.rows(6000, seed=9)
    source, target = base / "long.txt", base / "long.out"
    source.write_text("\n".join(lines) + "\n")
    flags = [f"--decode_from_file={source}", f"--decode_to_file={target}"]
    hparams = "beam_size=1,extra_length=1"
    line = [toy.programs() / "t2t-keras-decode", *arguments(base, hparams, *flags)]
    unfinished = base / "long.out.unfinished"
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (unfinished.exists() and unfinished.stat().st_size):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        message = process.communicate()[1].strip().split("\n")[-1]
    assert process.returncode == 128 + signal.SIGTERM
    there = unfinished.read_bytes().count(b"\n")
    assert 0 < there < 6000
    assert message == f"stopped by SIGTERM after line {there:,}; rerun the command to resume"
    assert not target.exists()

    done = decode(base, hparams + ",batch_size=500", *flags)
    assert f"resuming after line {there:,} of {unfinished}" in done.stderr
    wanted = translations(base, lines, beam_size=1, extra_length=1)
    assert target.read_text().split("\n") == [*wanted, ""]
    assert not list(base.glob("long.out.*"))
    target.unlink()


def losses(base, pairs):
    toy.quick_graphs()
    scores = PairScorer(load(base), encoders(base)).score_lines(map(Line, (1, 2, 3), pairs))
    return [f"{score.loss:.6f}" for score in scores]


def test_words_that_must_appear_and_scores_of_tokens(base):
    """A line has its text and the scores of its tokens, which sum to the log p of `score_file`."""
    target, lines = encoders(base)["targets"], toy.rows(3, seed=5)
    (base / "must.en").write_text("".join(f"{line}\n" for line in lines))
    words = target.decode([30]).strip(), target.decode([31]).strip()
    (base / "must.txt").write_text(f"{words[0]}\n\n{words[1]}\t{words[0]}\n")
    flags = (f"--constraints_file={base / 'must.txt'}", "--token_scores", "--decode_to_file=-")
    hparams = "beam_size=4,extra_length=8,alpha=0"
    out = decode(base, hparams, f"--decode_from_file={base / 'must.en'}", *flags).stdout
    fields = [line.split("\t") for line in out.splitlines()]
    assert words[0] in fields[0][0] and all(word in fields[2][0] for word in words)
    (base / "two.en").write_text("".join(f"{line}\n" for line in lines[:2]))
    said = refusal(base, flags[0], f"--decode_from_file={base / 'two.en'}")
    assert f"{base / 'must.txt'} has 3 lines, but {base / 'two.en'} 2: each sentence needs" in said
    flags = (f"--decode_from_file={base / 'two.en'}", f"--decode_prefix_file={base / 'must.en'}")
    assert "must.en has 3 lines, but " in refusal(base, *flags)
    pairs = [f"{source}\t{text}" for source, (text, _) in zip(lines, fields, strict=True)]
    (base / "pairs").write_text("\n".join([*pairs, "c\td\te"]))
    flags = ("--decode_hparams=batch_size=2", f"--score_file={base / 'pairs'}")
    assert "line 4 has 2 tabs" in refusal(base, *flags, f"--decode_to_file={base / 'none'}")
    assert not [*base.glob("none*")]
    (base / "pairs").write_text("\n".join(pairs))
    flags = (f"--score_file={base / 'pairs'}", f"--decode_to_file={base / 'scores'}")
    assert decode(base, "", *flags, "--token_scores").stdout == f"3 scores in {base / 'scores'}\n"
    with toy.server().Pool(1) as pool:  # equal to the last digit: by the same products
        wanted = pool.apply(losses, (base, pairs))
    scored = [line.split("\t") for line in (base / "scores").read_text().splitlines()]
    assert [loss for loss, _ in scored] == wanted
    for (_, found), (loss, scores) in zip(fields, scored, strict=True):
        scores, found = ([float(score) for score in each.split()] for each in (scores, found))
        assert sum(scores) == pytest.approx(-float(loss) * len(scores), abs=1e-3)
        assert found[:-1] == pytest.approx(scores[: len(found) - 1], abs=1e-3)  # may lack its end


def test_alignments_and_the_error_rates_of_all_heads(base):
    (base / "aligned").write_text("a b c\tc b a\nd e\te d\n")
    (base / "gold").write_text("0-2 1-1 2-0\n0-1 1?0\n")
    flags = ("", f"--align_file={base}/aligned")
    done = decode(base, *flags, "--align_heads=0:1", "--decode_to_file=-", eagerly=True)
    aligner = PairAligner(load(base), encoders(base), "0:1")
    wanted = aligner.align(["a b c", "d e"], ["c b a", "e d"])
    assert done.stdout.splitlines() == [to_pharaoh(each) for each in wanted]
    done = decode(base, *flags, f"--align_reference={base}/gold", eagerly=True)
    table = [line.split() for line in done.stdout.splitlines()]
    assert {row[0] for row in table} >= {"mean", "mean+1", "0", "0:0", "0:1+1"}
    assert [float(row[1]) for row in table] == sorted(float(row[1]) for row in table)


def test_what_is_typed_goes_on_after_a_mistake(monkeypatch, capsys):
    translator = functools.partial(Translator, networks.search_model(), networks.ENCODERS)
    monkeypatch.setattr(options, "trained_model", lambda: SimpleNamespace(translator=translator))
    monkeypatch.setattr(cli.decode, "FLAGS", SimpleNamespace(token_scores=False))
    typed = io.BytesIO(b"\xef\xbb\xbfw3\nother\n \nw3\xff\nq\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(typed, "utf-8"))
    translate_interactively(DecodeSettings(beam_size=1, extra_length=1))
    out, err = capsys.readouterr()
    first, blank, again = out.splitlines()
    assert first == again and not blank
    assert err.startswith("line 1: Token 'other' is not in the vocabulary")
    assert "warning: the line is not UTF-8: invalid bytes are dropped" in err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--decode_from_file=x", "--decode_interactive"], "give one of"),
        (["--score_file=x"], "--decode_to_file is missing: the scores of --score_file go there"),
        (["--align_file=x"], "--decode_to_file is missing: the alignments of --align_file go there"),
        (["--decode_interactive", "--decode_prefix_file=x"], "--decode_prefix_file needs --decode_from_file"),
        (["--decode_interactive", "--raw"], "--raw needs --decode_from_file"),
        (["--decode_interactive", "--decode_to_file=x"], "leave out --decode_to_file"),
        (["--decode_from_file=-", "--decode_prefix_file=-"], "only one input can be standard input"),
        (["--decode_from_file=-", "--constraints_file={}/empty", "--decode_hparams=beam_size=1"], "--constraints_file needs"),
        (["--decode_from_file=/nowhere"], "Cannot read /nowhere"),
        (["--decode_from_file={}/empty"], "/empty is empty: --decode_from_file needs a sentence"),
        (["--decode_from_file={}/empty", "--decode_to_file={}/./empty"], "/./empty would replace --decode_from_file: name another file"),
        (["--decode_from_file=-", "--decode_to_file=x.gz"], "--decode_to_file=x.gz would not be compressed"),
    ],
)  # fmt: skip
def test_complains_in_one_line(base, flags, expected):
    (base / "empty").touch()
    assert expected in refusal(base, *(flag.format(base) for flag in flags))


def test_the_name_of_a_run_may_contain_a_comma(base, tmp_path):
    run = shutil.copytree(base / "one", tmp_path / "run,lr=2")
    flags = (f"--data_dir={base}/data", "--decode_hparams=beam_size=1,extra_length=1")
    for flag in (f"--output_dir={run}", f"--checkpoint_path={run}/model.ckpt-7"):
        toy.ran("decode", *flags, flag, "--decode_from_file=-", input="a\n")


def test_complains_about_one_of_several_checkpoints(base):
    said = refusal(base, "--decode_from_file=-", run=f"one,{base}/three")
    assert f"no checkpoint at {base}/three" in said
