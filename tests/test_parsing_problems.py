"""Problems of parsing: the files they read, what becomes of the trees, and their F1."""

import json

import pytest
import toy
from corpus_files import stored_texts, write_lines as write
from random_trees import sentences

from t2t_keras import checkpoints, load, registry
from t2t_keras.cli import eval as command
from t2t_keras.data import dataset
from t2t_keras.data.generation import read_counts
from t2t_keras.data.parsing_problem import spaced_trees
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.metrics import parsing_f1
from t2t_keras.parsing import linearize, parse_tree, strip_for_parsing, to_tree
from t2t_keras.settings import HParams
from t2t_keras.training import EarlyStopping, Trainer, TrainSettings
from t2t_keras.transformer import Transformer

SPLITS = ("train", "dev", "test")
SMALL = (
    "transformer_parsing_base,hidden_size=64,filter_size=128,num_heads=4,num_hidden_layers=2,"
    "batch_size=1024,max_length=128,length_bucket_step=1.5,learning_rate_warmup_steps=100,"
    "learning_rate_constant=0.6,attention_dropout=0.0,relu_dropout=0.0,"
    "layer_prepostprocess_dropout=0.0"
)


def write_section(folder, trees):
    """Two files as the Penn Treebank has them: the root has no label, trees are indented."""
    folder.mkdir(parents=True)
    for number, part in enumerate((trees[::2], trees[1::2])):
        texts = [f"\n( {tree[6:-1].replace(' (', chr(10) + '    (')} )\n" for tree in part]
        (folder / f"wsj_{folder.name}0{number}.mrg").write_text("".join(texts))


def samples(problem, tmp_dir, split):
    return list(problem.generate_samples(tmp_dir, tmp_dir, split))


def pair(tree):
    words, tags = linearize(strip_for_parsing(parse_tree(tree)))
    return {"inputs": words, "targets": tags}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data of splits of GUM's form."""
    treebank, data_dir = tmp_path_factory.mktemp("treebank"), tmp_path_factory.mktemp("data")
    for seed, (split, count) in enumerate(zip(SPLITS, (2000, 60, 20), strict=True)):
        write(treebank / f"{split}.trees.gz", sentences(count, seed))
    registry.problem("parsing_english_gum").generate_data(data_dir, treebank)
    return data_dir


# Files


@pytest.mark.parametrize("place", ["", "wsj", "treebank_3/parsed/mrg/wsj", "MRG/WSJ"])
def test_sections_of_the_penn_treebank(tmp_path, place, capfd):
    by_section = {number: sentences(4, number) for number in range(25)}
    for number, trees in by_section.items():
        write_section(tmp_path / place / f"{number:02}", trees)
    problem = registry.problem("parsing_english_ptb16k")
    in_order = {n: [pair(tree) for tree in t[::2] + t[1::2]] for n, t in by_section.items()}
    train = [sample for number in range(2, 22) for sample in in_order[number]]
    for split, expected in (("train", train), ("dev", in_order[22]), ("test", in_order[23])):
        assert samples(problem, tmp_path, split) == expected
    assert capfd.readouterr().err == ""


def test_a_section_that_is_absent_is_reported(tmp_path, capfd):
    for number in (2, *range(4, 21)):
        write_section(tmp_path / f"{number:02}", sentences(2, number))
    assert len(samples(registry.problem("parsing_english_ptb16k"), tmp_path, "train")) == 36
    assert capfd.readouterr().err == f"warning: {tmp_path} has no section 03, 21: read without it\n"


@pytest.mark.parametrize("name", ["wsj.train.trees", "wsjTrain.trees.gz", "02-21.10way.clean"])
def test_files_of_a_tree_a_line(tmp_path, name):
    trees = sentences(5, seed=1)
    write(tmp_path / name, trees)
    problem = registry.problem("parsing_english_ptb16k")
    assert samples(problem, tmp_path, "train") == [pair(tree) for tree in trees]


def test_icelandic_has_its_own_vocabulary_a_side(tmp_path):
    for split, count in (("train", 300), ("dev", 20)):
        pairs = [pair(tree) for tree in sentences(count, seed=count)]
        lines = [f"{line['inputs']} \t{line['targets']}" for line in pairs]
        write(tmp_path / f"parsing_{split}.pairs", [*lines, "no træ", "\tS /S"])
    problem = registry.problem("parsing_icelandic16k")
    problem.generate_data(tmp_path, tmp_path)
    assert problem.dropped == {"empty": 2}  # of each split
    for split in ("train", "dev"):
        assert read_counts(tmp_path, "parsing_icelandic16k", split).dropped == {"empty": 2}
    assert len(list(tmp_path.glob("parsing_icelandic16k-train-*"))) == 10
    encoders = problem.get_feature_encoders(tmp_path)
    inputs = tmp_path / "ice_source.tokens.vocab.16384"
    targets = tmp_path / "ice_target.tokens.vocab.256"
    assert "æ" not in inputs.read_text()
    for side, file in (("inputs", inputs), ("targets", targets)):
        assert encoders[side].vocab_size == len(file.read_text().splitlines())
    tags = pairs[0]["targets"]
    assert encoders["targets"].decode(encoders["targets"].encode(tags)) == tags
    assert problem.space_ids == (18, 19)
    assert problem.loss_multiplier == 2.5
    # Whatever the file holds, the table of trees has 256 rows, as in T2T.
    tokens = encoders["targets"].vocab_size
    assert tokens != 256
    sizes = {"inputs": encoders["inputs"].vocab_size, "targets": 256}
    assert problem.get_hparams(None, tmp_path).vocab_size == sizes
    turned = registry.problem("parsing_icelandic16k_rev")
    of_turned = {"inputs": 256, "targets": sizes["inputs"]}
    assert turned.get_hparams(None, tmp_path).vocab_size == of_turned
    fitting = targets.read_text()
    targets.write_text(fitting + "".join(f"'more{i}_'\n" for i in range(257 - tokens)))
    with pytest.raises(UserError, match=r"has 257 tokens, and the table of .* has 256 rows"):
        registry.problem("parsing_icelandic16k").get_hparams(None, tmp_path)
    targets.write_text(fitting)
    assert_a_checkpoint_of_t2t_decodes(tmp_path, **sizes)


def assert_a_checkpoint_of_t2t_decodes(directory, inputs, targets):
    hp = registry.hparams("transformer_test,num_hidden_layers=1")
    model = Transformer(hp, source_vocab_size=inputs, target_vocab_size=targets)
    checkpoints.save_t2t(model, str(directory / "run" / "model.ckpt-1"))
    (directory / "run" / "hparams.json").write_text(json.dumps(hp.to_dict()))
    write(directory / "lines", ["tea"])
    model_and_data = (f"--checkpoint_path={directory / 'run'}", f"--data_dir={directory}")
    files = (f"--decode_from_file={directory / 'lines'}", f"--decode_to_file={directory / 'out'}")
    flags = ("--problem=parsing_icelandic16k", "--decode_hparams=beam_size=2,extra_length=2")
    assert "warning" not in toy.ran("decode", *flags, *model_and_data, *files, eagerly=True).stderr
    assert len((directory / "out").read_text().splitlines()) == 1
    problem, output_dir = registry.problem("parsing_icelandic16k"), str(directory / "ours")
    begun = Trainer(problem, hp, str(directory), output_dir, TrainSettings(train_steps=0)).prepare()
    assert (begun.model.source_vocab_size, begun.model.target_vocab_size) == (inputs, targets)


TREES = "train data of parsing_english_ptb16k needs trees in brackets, such as (TOP (NP (NN tea))), in {}; "


@pytest.mark.parametrize(
    "name, there, expected",
    [
        ("english_ptb16k", [], TREES + "absent: wsj.train.trees or wsjTrain.trees or 02-21.10way.clean (one tree per line) or sections 02 to 21 (02/*.mrg, also below wsj, "),
        ("english_ptb16k", ["wsj.train.trees"], "absent: wsj.dev.trees or wsjEval.trees or "),
        ("english_semisup32k", ["wsj.train.trees", "berkeley_parser.trees"], "absent: high_confidence.trees (one tree per line). Place them there, plain or .gz, or give another --tmp_dir."),
        ("english_gum", ["train.trees", "test.trees"], "absent: dev.trees (one tree per line)."),
    ],
)  # fmt: skip
def test_absent_files_are_reported_before_anything_is_written(tmp_path, name, there, expected):
    for file in there:
        write(tmp_path / file, sentences(3, seed=0))
    with pytest.raises(UserError) as error:
        registry.problem(f"parsing_{name}").generate_data(tmp_path / "data", tmp_path)
    assert expected.format(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


# What becomes of the trees


def test_trees_come_back_from_the_shards(data_dir):
    problem = registry.problem("parsing_english_gum")
    found = [to_tree(words, tags) for words, tags in stored_texts(problem, "dev", data_dir)]
    gold = [str(strip_for_parsing(parse_tree(tree))) for tree in sentences(60, seed=1)]
    assert sorted(found) == sorted(gold)
    encoder = problem.get_feature_encoders(data_dir)["targets"]
    assert encoder.encode("NP /NP") == [encoder.encode(tag)[0] for tag in ("NP", "/NP")]


def test_vocabularies_are_of_the_training_trees_alone(tmp_path):
    for split, tree in zip(SPLITS, ("(NP (NN a))", "(UCP (NN a))", "(NP (FW a))"), strict=True):
        write(tmp_path / f"{split}.trees", [f"(TOP {tree})"])
    problem = registry.problem("parsing_english_gum")
    problem.generate_data(tmp_path, tmp_path)
    tags = tmp_path / "vocab.parsing_english_gum.tags.tokens"
    assert tags.read_text().split() == ["<pad>", "<EOS>", "<UNK>", "/NP", "NN", "NP"]
    targets = problem.get_feature_encoders(tmp_path)["targets"]
    assert targets.decode(targets.encode("UCP NN FW /UCP")) == "<UNK> NN <UNK> <UNK>"
    [dev] = dataset(problem, "dev", tmp_path, HParams()).as_numpy_iterator()
    assert dev["targets"][0, :4].tolist() == [2, 4, 2, 1]
    assert "UCP" not in (tmp_path / str(problem.vocab_filename)).read_text()
    problem._encoders = None
    tags.unlink()
    with pytest.raises(UserError, match=r"tags\.tokens is absent: run t2t-keras-datagen"):
        problem.get_feature_encoders(tmp_path)
    message = r"not its vocabulary .*tags\.tokens: copy the vocabulary there"
    with pytest.raises(UserError, match=message):
        problem.generate_data(tmp_path, tmp_path)


def test_trees_of_the_penn_treebank_as_tokens(tmp_path):
    """The same trees; other vocabularies, that of words of words alone, and the grammar beside them."""
    for split in SPLITS:
        write(tmp_path / f"wsj.{split}.trees", sentences(20, seed=3))
    problem = registry.problem("parsing_english_ptb16k_tags")
    problem.generate_data(tmp_path, tmp_path)
    assert len(list(tmp_path.glob("parsing_english_ptb16k_tags-train-*"))) == 10
    encoders = problem.get_feature_encoders(tmp_path)
    tags = encoders["targets"]
    assert tags.encode("NP /NP") == [tags.encode(tag)[0] for tag in ("NP", "/NP")]
    assert "VBZ" not in (tmp_path / problem.vocab_filename).read_text()
    assert tags.grammar["tags"]["the"] == "DT"
    turned = registry.problem("parsing_english_ptb16k_tags_rev")
    assert problem.constraint(encoders) and not turned.constraint(encoders)
    (tmp_path / "grammar.parsing_english_ptb16k_tags.json").unlink()  # as version 0.1.0 leaves it
    problem = registry.problem("parsing_english_ptb16k_tags")
    assert problem.constraint(problem.get_feature_encoders(tmp_path)) is None


def test_trees_without_words_are_left_out_and_counted(tmp_path):
    write(tmp_path / "train.trees", ["(())", "(ROOT (NP (NN a)))", "( (S (-NONE- 0)) )"])
    problem = registry.problem("parsing_english_gum")
    assert samples(problem, tmp_path, "train") == [{"inputs": "a", "targets": "NP NN /NP"}]
    assert problem.dropped == {"empty": 2}


def test_semi_supervised_training_data(tmp_path):
    gold, sure, parsed = (sentences(n, seed) for n, seed in ((5, 1), (7, 2), (11, 3)))
    for split in SPLITS:
        write(tmp_path / f"wsj.{split}.trees", gold)
    write(tmp_path / "high_confidence.trees.gz", sure)
    write(tmp_path / "berkeley_parser" / "00.trees", parsed)
    problem = registry.problem("parsing_english_semisup32k")
    pairs = [pair(tree) for tree in gold + sure + parsed]
    assert samples(problem, tmp_path, "train") == pairs
    assert samples(problem, tmp_path, "dev") == pairs[: len(gold)]
    text = list(problem.generate_text_for_vocab(tmp_path, tmp_path))
    assert text == [each[side] for each in pairs for side in ("inputs", "targets")]
    assert (problem.approx_vocab_size, problem.dataset_splits[0]["shards"]) == (2**15, 100)


def test_vocabulary_of_a_large_corpus_is_from_all_over_it(tmp_path):
    trees = [f"(TOP (NN w{number:03}))" for number in range(100)]
    write(tmp_path / "a.trees", trees[:50])
    write(tmp_path / "b.trees", ["", *trees[50:]])
    files = [tmp_path / "a.trees", tmp_path / "b.trees"]
    assert [str(tree) for tree in spaced_trees(files, len("".join(trees)) // 10)] == trees[::10]


def test_t2ts_problem_strips_the_outermost_bracket_alone(tmp_path):
    write(tmp_path / "wsjTrain.trees", ["(TOP (S (NP-SBJ (PRP I)) (VP (VBP see))))", "(S (NN a))"])
    problem = registry.problem("wsj_parsing")
    assert samples(problem, tmp_path, "train") == [
        {"inputs": "I see", "targets": "S NP-SBJ PRP /NP-SBJ VP VBP /VP /S"},
        {"inputs": "a", "targets": "NN"},
    ]
    assert list(problem.generate_text_for_vocab(tmp_path, tmp_path))[2:] == ["a", "NN"]
    write(tmp_path / "wsj.train.text.txt", ["of T2T"] * 1500)
    with pytest.raises(UserError, match=r"wsj\.train\.tags\.txt"):
        list(problem.generate_text_for_vocab(tmp_path, tmp_path))
    write(tmp_path / "wsj.train.tags.txt", ["IN NN"] * 1500)
    assert list(problem.generate_text_for_vocab(tmp_path, tmp_path)) == ["of T2T", "IN NN"] * 1000
    assert problem.vocab_filename == "vocab.wsj_parsing.32768.subwords"


# Outputs


def test_an_output_becomes_a_tree_and_repairs_are_counted():
    problem = registry.problem("parsing_english_gum")
    assert problem.format_report() == ""
    assert problem.format_output("a cup", "NP DT NN /NP") == "(TOP (NP (DT a) (NN cup)))"
    assert problem.format_report() == "0 of 1 trees were repaired"
    assert problem.format_output("a cup", "NP DT NN") == "(TOP (NP (DT a) (NN cup)))"
    assert problem.format_report() == "1 of 2 trees were repaired (closings added: 1)"
    reverse = registry.problem("parsing_english_gum_rev")
    assert reverse.format_output("NP NN /NP", "cup") == "cup"
    assert reverse.quality_metric == "bleu"


def test_quality_is_f1_of_the_phrases():
    problem = registry.problem("parsing_english_gum")
    words = ["the cat , a cup", "tea"]
    gold = ["NP NP DT NN /NP , NP DT NN /NP /NP", "NP NN /NP"]
    assert problem.quality_metric == "f1"
    assert problem.quality(words, gold, gold) == 100
    flat = ["NP DT NN NN DT NN /NP", "NP NN /NP"]  # and a comma that is tagged as a word
    assert problem.quality(words, gold, flat) == pytest.approx(200 * 2 / (4 + 2))
    assert parsing_f1(*(list(map(to_tree, words, tags)) for tags in (gold, flat))).errors == 1
    assert problem.quality(words, gold, ["", "VP"]) == 0


def test_learns_to_parse(data_dir, tmp_path, capsys):
    problem, hp = registry.problem("parsing_english_gum"), registry.hparams(SMALL)
    steps = {"train_steps": 300, "local_eval_frequency": 300, "eval_steps": 0}
    decode = DecodeSettings(beam_size=1, extra_length=60)
    settings = TrainSettings(**steps, best_metric="f1", decode=decode)
    figures = Trainer(problem, hp, str(data_dir), str(tmp_path), settings).run()
    assert figures.keys() == {"loss", "accuracy", "f1"}
    assert figures["f1"] > 70
    assert f"  F1 {figures['f1']:.2f}  (the best so far)" in capsys.readouterr().err
    assert command.line(figures).endswith(f"  F1 {figures['f1']:.2f}")
    loaded = load(tmp_path, decode_hparams="beam_size=2,extra_length=60")
    loaded.translate(["tea sees the the cup", "in of by drinks a", "unknown words ."])
    assert loaded.problem.format_report() == "0 of 3 trees were repaired"


NO_BLEU = ({"best_metric": "bleu"}, {"early_stopping": EarlyStopping(steps=1, metric="bleu")})


@pytest.mark.parametrize("settings", NO_BLEU)
def test_there_is_no_bleu_of_trees(data_dir, tmp_path, settings):
    problem, hp = registry.problem("parsing_english_gum"), registry.hparams(SMALL)
    with pytest.raises(UserError, match="_gum has no bleu: choose loss, accuracy or f1"):
        Trainer(problem, hp, str(data_dir), str(tmp_path), TrainSettings(**settings)).prepare()
