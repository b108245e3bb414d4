"""Inputs and targets in one sequence (T2T's `prepend_mode`): masks, losses, searches, batches and commands."""

import json

import golden
import keras
import networks
import numpy as np
import numpy_transformer
import pytest
import toy

import t2t_keras as t2t
from t2t_keras.data import Batches
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.decoding import Ensemble, beam_search, greedy, score
from t2t_keras.errors import UserError

MASKED, FULL = "prepend_inputs_masked_attention", "prepend_inputs_full_attention"
RELATIVE = "self_attention_type=dot_product_relative,max_relative_position=2,pos=None"
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 10, 1, 0, 0]], np.int32)
TARGETS = np.array([[4, 1, 0, 0], [7, 8, 9, 1]], np.int32)
ROWS = np.array([[5, 6, 7, 8, 1, 0, 4, 1, 0, 0], [9, 10, 1, 0, 7, 8, 9, 1, 0, 0]])
"""What T2T makes of both: the inputs of a row, a 0, its targets."""


def model_of(mode, more=""):
    overrides = f"num_hidden_layers=2,prepend_mode={mode}{more and ','}{more}"
    return networks.small_model(overrides, spread=3.0, ending=1.0)


@pytest.mark.parametrize("mode", [MASKED, FULL])
@pytest.mark.parametrize("more", ["", RELATIVE, "pos=emb,proximity_bias=true"])
def test_logits_are_those_of_one_row_as_tensor2tensor_makes_it(mode, more):
    """The numpy Transformer knows T2T's rows and its rule of who sees whom, and no padding between."""
    model = model_of(mode, more)
    wanted = networks.numpy_logits(model, INPUTS, ROWS)
    found = model({"inputs": INPUTS, "targets": TARGETS})
    np.testing.assert_allclose(found[0, :2], wanted[0, 6:8], atol=1e-4)
    np.testing.assert_allclose(found[1], wanted[1, 4:8], atol=1e-4)


def losses_of(model, batch):
    """The losses that training and evaluation by Keras give for the same weights."""
    model.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    trained = model.train_on_batch(batch, return_dict=True)["loss"]
    model.reset_metrics()
    return trained, model.test_on_batch(batch, return_dict=True)["loss"]


def test_equals_tensor2tensor():
    """Every variable and logit of the row, and both losses, which are of its checkpoint."""
    folder = golden.FOLDER / "prepend"
    arrays = dict(np.load(folder / "golden.npz"))
    config = json.loads((folder / "config.json").read_text())
    hp = t2t.registry.hparams(config["hparams_set"], f"{config['overrides']},{golden.NO_DROPOUT}")
    model = t2t.Transformer(hp, source_vocab_size=14, target_vocab_size=14)
    t2t.checkpoints.load_t2t(model, str(folder / "model.ckpt-0"))
    batch = {"inputs": arrays["inputs"], "targets": arrays["targets_of_example"]}
    np.testing.assert_allclose(model(batch, training=True), arrays["logits"], atol=1e-5)
    wanted = [float(arrays[loss]) for loss in ("training_loss", "eval_loss")]
    assert losses_of(model, batch) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("mode", [MASKED, FULL])
def test_the_loss_counts_targets_and_in_masked_training_inputs(mode):
    """T2T: `weights_prepend_inputs_to_targets`, but `weights_nonzero` of the row in masked training."""
    model = model_of(mode, f"{golden.NO_DROPOUT},label_smoothing=0")
    p = numpy_transformer.softmax(networks.numpy_logits(model, INPUTS, ROWS))
    losses = -np.log(np.take_along_axis(p, ROWS[..., None], -1)[..., 0])
    of_targets = losses[(ROWS != 0) & (np.cumsum(ROWS == 0, axis=1) > 0)].mean()
    of_all = losses[ROWS != 0].mean()
    loss, tokens = model.training_sums({"inputs": INPUTS, "targets": TARGETS})
    trained, tested = losses_of(model, {"inputs": INPUTS, "targets": TARGETS})
    assert float(loss / tokens) == pytest.approx(trained, rel=1e-5)
    assert trained == pytest.approx(of_all if mode == MASKED else of_targets, rel=1e-5)
    assert tested == pytest.approx(of_targets, rel=1e-5)
    assert -np.sum(score(model, INPUTS, TARGETS)) / 6 == pytest.approx(of_targets, rel=1e-5)


def test_a_compiled_search_finds_the_same():
    model = model_of(FULL, RELATIVE)
    options = {"beam_size": 2, "alpha": 0.0, "extra_length": 3}
    ids, found = beam_search(model, INPUTS, **options, xla=True)
    np.testing.assert_allclose(score(model, INPUTS, ids[:, 0]), found[:, 0], atol=1e-5)


def test_an_ensemble_may_hold_one_beside_a_model_with_an_encoder(eagerly):
    both = [model_of(FULL), networks.small_model(seed=3, spread=3.0, ending=1.0)]
    ids, scores = greedy(Ensemble(both), INPUTS, extra_length=3)
    np.testing.assert_allclose(score(Ensemble(both), INPUTS, ids), scores, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: networks.small_model(f"prepend_mode={FULL}", target_vocab=24), "needs one vocabulary for inputs and targets, got sizes 23 and 24"),
        (lambda: networks.small_model(f"prepend_mode={FULL}", source_vocab=None), "needs one vocabulary for inputs and targets, got sizes None and 23"),
        (lambda: t2t.TransformerClassifier(t2t.registry.hparams("transformer_prepend"), source_vocab_size=9, num_classes=9), "a classifier has no target sequence"),
        (lambda: model_of("prepend"), "prepend_mode"),
        (lambda: model_of(FULL)(dict.fromkeys(("inputs", "targets", *t2t.transformer.PACKING), INPUTS)), "does not support packed pairs"),
    ],
)  # fmt: skip
def test_what_cannot_be_prepended_is_reported(make, message):
    with pytest.raises(UserError, match=message):
        make()


PACKAGE = """
from t2t_keras.data import Text2SelfProblem, Text2TextProblem, VocabType
from t2t_keras.registry import register_problem

class Lines:
    is_generate_per_split = True
    vocab_type = VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 1}, {"split": "dev", "shards": 1}]
    def generate_samples(self, data_dir, tmp_dir, split):
        for n in range(60):
            yield {"inputs": "a" * (n % 5), "targets": "b" * (n % 3)}

@register_problem
class PrependPairs(Lines, Text2TextProblem):
    pass

@register_problem
class PrependPacked(PrependPairs):
    packed_length = 24

@register_problem
class PrependSelf(Lines, Text2SelfProblem):
    pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepend")
    (folder / "prepend_package").mkdir()
    (folder / "prepend_package" / "__init__.py").write_text(PACKAGE)
    t2t.registry.import_user_directory(str(folder / "prepend_package"))
    t2t.registry.problem("prepend_pairs").generate_data(folder, folder)
    return folder


def test_batches_are_of_whole_sequences(folder):
    """By hand: inputs have 1 to 5 ids and targets 1 to 3; of 15 pairs 12 have up to 7 ids with the 0."""
    problem = t2t.registry.problem("prepend_pairs")
    hp = t2t.registry.hparams("transformer_tiny", f"prepend_mode={FULL},max_length=7,batch_size=14")
    kept = [n for n in range(60) if n % 5 + n % 3 + 3 <= 7]
    batches = Batches(problem, "train", folder, hp)
    assert batches.examples == len(kept) == 48
    assert (2, 7) in batches.shapes
    pairs = sorted((n % 5, n % 3) for n in kept)
    hp = hp.replace(eval_drop_long_sequences=True)
    on_the_fly = TextBatches(problem, "dev", folder, folder, hp)
    for made in (Batches(problem, "dev", folder, hp), on_the_fly):
        rows = [row for batch in made.dataset() for row in zip(*batch.values(), strict=True)]
        found = sorted(tuple(int(np.sum(side > 1)) for side in row) for row in rows)
        assert [row for row in found if row != (0, 0) or row in pairs] == pairs


@pytest.mark.parametrize(
    ("problem", "message"), [("packed", "packs several pairs into a row"), ("self", "no pairs")]
)
def test_other_data_is_refused(folder, problem, message):
    hp = t2t.registry.hparams("transformer_prepend")
    with pytest.raises(UserError, match=message):
        Batches(t2t.registry.problem(f"prepend_{problem}"), "train", folder, hp)


def test_the_commands_take_one(folder):
    """Decoding, its export and the scores of pairs are those of the model that was trained."""

    def command(name, *flags, eagerly=True):
        own = f"--t2t_usr_dir={folder / 'prepend_package'}"
        return toy.ran(name, own, *flags, eagerly=eagerly).stdout

    small = toy.hparams(prepend_mode=FULL, num_hidden_layers=1, hidden_size=16, filter_size=16)
    run, searched = f"--output_dir={folder / 'run'}", "--decode_hparams=beam_size=2,extra_length=2"
    command(
        *("train", "--problem=prepend_pairs", f"--hparams={small}", f"--data_dir={folder}", run),
        *("--train_steps=2", "--local_eval_frequency=2", "--eval_steps=1", searched),
    )
    lines, pairs = folder / "lines", folder / "pairs"
    lines.write_text("aaa\naaaaa\n")
    pairs.write_text("aa\tb\na\tbb\n")
    to = [run, "--decode_to_file=-"]
    found = command("decode", *to, f"--decode_from_file={lines}", searched)
    command("export", run, searched, "--nowarm_up", eagerly=False)
    assert t2t.load(folder / "run" / "export").translate(["aaa", "aaaaa"]) == found.splitlines()
    losses = command("decode", *to, f"--score_file={pairs}").split()
    encode = t2t.text.ByteTextEncoder().encode
    model = t2t.checkpoints.load_model(str(folder / "run"))
    for loss, pair in zip(losses, (("aa", "b"), ("a", "bb")), strict=True):
        source, target = ([[*encode(side), 1]] for side in pair)
        wanted = -float(score(model, source, target)[0]) / len(target[0])
        assert float(loss) == pytest.approx(wanted, abs=1e-5)
