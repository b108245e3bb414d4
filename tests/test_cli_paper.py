"""t2t-keras-paper, and a row of the paper on toy data, killed in every stage."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy

from t2t_keras import paper, registry
from t2t_keras.cli.paper import table
from t2t_keras.errors import UserError
from t2t_keras.metrics import bleu
from t2t_keras.paper import experiment
from t2t_keras.paper.experiment import Experiment, ExperimentSettings

TINY = (
    "num_hidden_layers=1,hidden_size=16,filter_size=16,num_heads=2,batch_size=512,"
    "tokens_per_update=600,max_length=16,length_bucket_step=2.0"
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list"], r"paper_table3_a_h1 +table 3 \(A\) +perplexity 5.29, BLEU 24.9"),
        (["show", "paper_big"], "300,000 updates of about 25,000 target tokens"),
        (["cost", "paper_base", "paper_big"], r"P100 +9\.5 float32 +16 +93 +12\n"),
    ],
)
def test_answers_at_once_and_without_tensorflow(arguments, expected):
    code = (
        "import sys\n"
        "from t2t_keras.cli import paper\n"
        f"sys.argv = ['t2t-keras-paper', *{arguments}]\n"
        "try:\n    paper.run()\n"
        "finally:\n    print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert re.search(expected, done.stdout)
    assert done.stdout.endswith("[]\n")
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "unknown action ''"),
        (["cots", "paper_base"], "Did you mean 'cost'"),
        (["show"], "show needs the name of a row"),
        (["show", "paper_bse"], "unknown row 'paper_bse'. Did you mean 'paper_base'"),
        (["list", "paper_base"], "unexpected argument 'paper_base'"),
        (["cost", "paper_base", "--utilization=0"], "utilization must be more than 0"),
        (["cost", "paper_base", "--hparams=batch=1"], "unknown hparam 'batch'"),
        (["run", "paper_base", "paper_big"], "one row at a time"),
        (["run", "paper_base", "--data_dir=d"], "--output_dir is missing"),
        (["results"], "results needs a directory"),
        (["results", "nowhere"], "nowhere holds no experiment"),
    ],
)
def test_mistakes_end_in_a_line(arguments, expected, tmp_path):
    assert expected in toy.complaint(toy.command("paper", *arguments, cwd=tmp_path))


# Running


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A row on toy data whose every stage was stopped; the starts' codes, output and errors."""
    directory = tmp_path_factory.mktemp("paper")
    text = toy.write_text(directory / "text")
    output_dir = directory / "out"
    python = str(toy.programs() / "python")
    code = f"import sys; sys.executable = {python!r}; from t2t_keras.cli import paper; paper.run()"
    line = [
        *(sys.executable, "-c", code, "run", "paper_base"),
        *(f"--tmp_dir={text}", f"--data_dir={directory / 'data'}", f"--output_dir={output_dir}"),
        *(f"--problem={toy.PROBLEM}", "--train_steps=12", f"--hparams={TINY}"),
        "--train_flags=--eval_steps=1 --decode_hparams=beam_size=1,extra_length=1",
    ]
    starts = [
        _start(line, directory, "datagen", signal.SIGTERM),
        _start(line, directory, "texts", signal.SIGKILL),
        _start(line, directory, "train", signal.SIGTERM, output_dir / "run/model.ckpt-2.index"),
        _start(line, directory, "average", signal.SIGINT),
        _start(line, directory, "decode", signal.SIGTERM),
        _start(line, directory),
        _start(line, directory),
    ]
    return output_dir, starts


def _start(line, directory, stage="", number=None, after=None):
    """Starts it, sends a signal when a stage has begun and a file is there, and waits."""
    files = [directory / name for name in ("stdout", "stderr")]
    with files[0].open("w") as out, files[1].open("w") as err:
        # Tests that run in the background of a shell have been told to ignore SIGINT.
        listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(line, stdout=out, stderr=err, preexec_fn=listen)
        while stage and process.poll() is None:
            begun = f"\n{stage}: t2t-" in "\n" + files[0].read_text()
            begun = begun or f"\n{stage}: python" in "\n" + files[0].read_text()
            if begun and (after is None or after.exists()):
                process.send_signal(number)
                break
            time.sleep(0.02)
        code = process.wait(timeout=120)
    return code, *(file.read_text() for file in files)


def test_is_stopped_in_every_stage_and_goes_on_there(tried):
    """Each start leaves out the stages that are done, and tells the stage in which it was stopped."""
    _, starts = tried
    assert [code for code, *_ in starts] == [143, -9, 143, 130, 143, 0, 0]
    for number, stage in {0: "datagen", 2: "train", 3: "average", 4: "decode"}.items():
        last = starts[number][2].strip().split("\n")[-1]
        assert re.fullmatch(
            rf"stopped by SIG\w+ in the stage {stage}: run the same command to resume", last
        )
    outputs = [stdout for _, stdout, _ in starts]
    done = {2: "datagen", 3: "texts", 4: "train", 5: "average"}
    assert all(f"{stage}: done" in outputs[number] for number, stage in done.items())
    assert "resuming from step" in starts[3][2]
    stages = ["datagen", "texts", "train", "average", "decode", "score"]
    assert outputs[6].startswith("".join(f"{stage}: done\n" for stage in stages))


def test_averages_the_last_evaluations(tried):
    output_dir, starts = tried
    run = json.loads((output_dir / "averaged" / "run.json").read_text())
    (sources,) = run["averages"].values()
    # 12 // 5 updates apart, and the last one
    assert [source.rsplit("-")[-1] for source in sources] == ["4", "6", "8", "10", "12"]
    assert "2 batches per update, about 5" in starts[3][1]


def test_gives_the_figures(tried):
    output_dir, starts = tried
    assert len((output_dir / "outputs.txt").read_text().splitlines()) == 100
    result = json.loads((output_dir / "result.json").read_text())
    assert result["split"] == "dev"  # this problem has no test data
    assert result["figures"].keys() == {"BLEU", "sacreBLEU"}
    (line,) = table([str(output_dir.parent)])[2:3]
    assert line in starts[6][1]
    assert line.startswith(f"| paper_base | BLEU | 27.3 | {result['figures']['BLEU']:.2f} | -")
    assert "dev, 12 of 100,000 updates" in line


def test_other_settings_need_another_directory(tried):
    output_dir, _ = tried
    done = toy.command(
        "paper",
        *("run", "paper_base", f"--data_dir={output_dir.parent / 'data'}"),
        *(f"--output_dir={output_dir}", "--train_steps=13", f"--problem={toy.PROBLEM}"),
        f"--hparams={TINY}",
    )
    assert "train_steps was 12 and is now 13" in toy.complaint(done)


def test_what_is_wrong_in_a_stage_is_said_once(tmp_path):
    done = toy.command(
        "paper",
        *("run", "paper_base", f"--problem={toy.PROBLEM}", f"--tmp_dir={tmp_path / 'nothing'}"),
        *(f"--data_dir={tmp_path / 'data'}", f"--output_dir={tmp_path / 'out'}"),
    )
    assert "inputs.train.txt" in toy.complaint(done)
    lines = table([str(tmp_path)])
    assert lines[2].startswith("| paper_base | BLEU | 27.3 |  |  | text2text_tmpdir, step 0 so far")


@pytest.mark.parametrize("content", ['{"problem": "x"}', "[]"])
def test_a_record_of_something_else_is_one_line(tmp_path, content):
    (tmp_path / experiment.RECORD_FILE).write_text(content)
    with pytest.raises(
        UserError, match=rf"{experiment.RECORD_FILE} (has no row|must be an object)"
    ):
        table([str(tmp_path)])


# Without programs


def flags_of(command):
    """Flags of a command and their values."""
    return dict(word[2:].split("=", 1) for word in command if word.startswith("--"))


class Pretended(experiment.Programs):
    """Writes what each program would, and records its flags."""

    def __init__(self):
        super().__init__(None)
        self.commands = []

    def run(self, command, output=None):
        name = command[2].rsplit(".")[-1]
        self.commands.append((name, flags_of(command)))
        getattr(self, name)(flags_of(command), output)
        return 0

    def train(self, flags, output):
        directory = Path(flags["output_dir"])
        directory.mkdir(exist_ok=True)
        steps = flags["train_steps"]
        (directory / f"model.ckpt-{steps}.index").touch()
        starts = [{"ended": f"done: step {steps}"}]
        (directory / "run.json").write_text(json.dumps({"starts": starts}))

    def decode(self, flags, output):
        with open(flags["decode_to_file"], "w") as file:
            file.write("ein Haus ist hier .\n")

    def eval(self, flags, output):
        output.write_text(
            "step 7: dev loss 1.6094  accuracy 0.5000  perplexity 5.0000  BLEU 1.00\n"
        )


def test_a_variation_is_judged_on_dev_without_averaging(tmp_path, monkeypatch):
    """A row of table 3 has newstest2013, no averaging and a perplexity (section 6.2)."""
    programs = Pretended()
    monkeypatch.setattr(experiment, "Programs", lambda lock: programs)
    settings = ExperimentSettings(str(tmp_path / "data"), str(tmp_path / "out"), str(tmp_path))
    tried = Experiment(paper.row("paper_table3_c_n4"), settings)
    monkeypatch.setattr(tried, "_has_data", lambda: True)
    tried.directory.mkdir()
    for path in (tried.inputs, tried.references):
        path.write_text("ein Haus ist hier .\n")
    figures = tried.run()
    assert figures == {
        "BLEU": pytest.approx(100),
        "sacreBLEU": pytest.approx(100),
        "perplexity": 5.0,
    }
    (_, train), (_, decode), (_, evaluate) = programs.commands
    assert train["hparams"] == "paper_table3_c_n4"
    assert train["train_steps"] == "100000"
    assert train["keep_checkpoint_max"] == "6"
    last = str(tmp_path / "out" / "run" / "model.ckpt-100000")
    assert decode["checkpoint_path"] == evaluate["checkpoint_path"] == last
    assert decode["decode_hparams"] == "beam_size=4,alpha=0.6,extra_length=50"
    assert tried.split == "dev"
    assert [line.split(" | ")[1:5] for line in table([str(tmp_path)])[2:4]] == [
        ["perplexity", "5.19", "5.00", "-0.19"],
        ["BLEU", "25.3", "100.00", "+74.70"],
    ]


def test_trees_are_judged_by_their_phrases():
    """F1 is of gold tags, as in `t2t-keras-eval`: a wrong tag of a comma does not leave the sentence out."""
    problem = registry.problem("parsing_english_gum")
    gold = "(TOP (S (NP (PRP I)) (, ,) (VP (VBP see))))"
    wrong_tag = "(TOP (S (NP (PRP I)) (NN ,) (VP (VBP see))))"
    cut = "(TOP (S (NP (PRP I))))"
    figures = experiment._figures(problem, [gold] * 3, [gold, wrong_tag, ""])
    assert figures == {"F1": 100, "F1, own tags": 100}
    figures = experiment._figures(problem, [gold] * 2, [wrong_tag, cut])
    assert figures == {"F1": 100, "F1, own tags": 0}
    flat = "(TOP (S (PRP I) (, ,) (VP (VBP see))))"
    assert experiment._figures(problem, [gold], [flat])["F1"] == 80  # 2 of 2 and of 3


def test_french_rows_are_judged_by_french_rules(tmp_path):
    """BLEU of French rows has French tokens: an apostrophe ends a word, and compounds stay whole."""
    references, outputs = ["l'eau est bien vue ici"], ["l'eau est bien vue là"]
    figures = {}
    for name in ("paper_base", "paper_big_enfr"):
        settings = ExperimentSettings("data", str(tmp_path), "tmp", problem=toy.PROBLEM)
        tried = Experiment(paper.row(name), settings)
        for path, lines in ((tried.references, references), (tried.outputs, outputs)):
            path.write_text("\n".join(lines) + "\n")
        tried._score()
        figures[name] = json.loads(tried.result.read_text())["figures"]
    assert figures["paper_base"]["BLEU"] == bleu(references, outputs).paper_style
    assert figures["paper_big_enfr"]["BLEU"] == bleu(references, outputs, "fr").paper_style
    assert figures["paper_base"]["BLEU"] != figures["paper_big_enfr"]["BLEU"]


@pytest.mark.parametrize(
    ("row", "train_steps", "interval", "wanted"),
    [
        ("paper_base", 0, 500, [94_000, 95_500, 97_000, 98_500, 100_000]),
        ("paper_big", 0, 600, [*range(288_600, 300_001, 600)]),
        ("paper_base", 3, 1, [1, 2, 3]),
        ("paper_base", 100, 20, [20, 40, 60, 80, 100]),
        # Every second step would be too often.
        ("paper_base", 102, 20, [40, 60, 80, 100, 102]),
        ("paper_base", 50_000, 500, [44_000, 45_500, 47_000, 48_500, 50_000]),
        ("paper_base", 99_999, 1_500, [94_500, 96_000, 97_500, 99_000, 99_999]),
    ],
)
def test_averaged_checkpoints_are_written_and_evenly_apart_where_that_is_cheap(
    row, train_steps, interval, wanted
):
    """The paper's rows average what lies ten minutes apart; shorter runs as many, closer together."""
    settings = ExperimentSettings("data", "out", "tmp", train_steps=train_steps)
    tried = Experiment(paper.row(row), settings)
    assert (tried.interval, tried.averaged_steps) == (interval, wanted)
    assert all(step % interval == 0 for step in wanted[:-1])


def test_a_run_of_0_1_0_goes_on_with_its_settings(tmp_path):
    """A run that began with T2T's sinusoids, as the paper's sets had them in 0.1.0, keeps these."""
    settings = ExperimentSettings(
        "data", str(tmp_path), "tmp", train_steps=600, hparams="batch_size=1024"
    )
    tried = Experiment(paper.row("paper_base"), settings)
    began_with = {**registry.hparams("paper_base").to_dict(), "pos": "timing"}
    tried.run_directory.mkdir()
    given = []
    for recorded in (began_with, {**began_with, "pos": "timing_paper"}):
        (tried.run_directory / "hparams.json").write_text(json.dumps(recorded))
        [train] = (stage.command for stage in tried.stages() if stage.name == "train")
        given.append(flags_of(train))
    ours = "paper_base,batch_size=1024"
    assert [flags["hparams"] for flags in given] == [f"{ours},pos=timing", ours]
    assert given[0]["keep_checkpoint_max"] == "10"


def test_what_cannot_be_read_is_an_error(tmp_path):
    quote = ExperimentSettings("d", str(tmp_path), "t", train_flags="--remat '")
    with pytest.raises(UserError, match=r"--train_flags cannot be read \(No closing quotation\)"):
        Experiment(paper.row("paper_base"), quote)
    often = ExperimentSettings("d", "o", "t", train_flags="--remat --local_eval_frequency=9")
    with pytest.raises(UserError, match="--train_flags contains --local_eval_frequency, which"):
        Experiment(paper.row("paper_base"), often)
    (tmp_path / "file").touch()
    settings = ExperimentSettings("d", str(tmp_path / "file"), "t")
    with pytest.raises(UserError, match="file cannot be written"):
        Experiment(paper.row("paper_base"), settings).run()
    with pytest.raises(UserError, match="unknown problem"):
        Experiment(paper.row("paper_base"), ExperimentSettings("d", "o", "t", problem="nothing"))
