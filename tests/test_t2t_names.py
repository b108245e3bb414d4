"""Every name of tensor2tensor's is here, or known with the reason."""

import json
from pathlib import Path

import pytest

from t2t_keras import registry, t2t_names
from t2t_keras.data import Text2TextProblem, TranslateProblem
from t2t_keras.errors import UserError

NAMES = Path(__file__).parents[2] / "shared" / "spec" / "t2t-names.json"


def assert_answered(name, make):
    try:
        made = make(name)
    except UserError as error:
        assert f"{name!r} of tensor2tensor is not supported: " in str(error)
    else:
        assert name in (getattr(made, "name", None), getattr(made, "set_name", None))


@pytest.mark.skipif(not NAMES.exists(), reason="needs the names of tensor2tensor in ../shared")
def test_every_problem_set_range_and_model_has_an_answer():
    names = json.loads(NAMES.read_text())
    for name in names["problems"]:
        assert_answered(name, registry.problem)
    for name in [*names["hparams"], *names["hparams_ranges"]]:
        assert_answered(name, registry.hparams)
    for name in {*names["models"]} - {"transformer", "transformer_encoder"}:
        with pytest.raises(UserError, match=f"model {name!r} of tensor2tensor is not supported: "):
            registry.require_model(name)


def test_what_is_here_is_not_said_to_be_absent():
    for kind, ours in (
        ("problem", registry.list_problems()),
        ("hparams set", registry.list_hparams()),
    ):
        assert not any(t2t_names.why_absent(kind, name) for name in ours)


@pytest.mark.parametrize(
    ("make", "name", "reason"),
    [
        (registry.hparams, "universal_transformer_base", "it is for the Universal Transformer"),
        (registry.hparams, "transformer_base_range", "it is a range for T2T's parameter search"),
        (registry.problem, "lambada_lm", "its text comes with an answer"),
        (registry.problem, "multi_nli", "it classifies pairs of texts"),
        (registry.problem, "image_mnist_rev", "it has images or video"),
        (registry.model, "slice_net", "it is a network other than the Transformer"),
    ],
)
def test_other_families_suggest_nothing_of_ours(make, name, reason):
    with pytest.raises(UserError, match=reason) as caught:
        make(name)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["transformer_bse", "transformer_natbase", "translate_endewmt"])
def test_a_misspelt_name_is_none_of_tensor2tensor_s(name):
    for make in (registry.hparams, registry.problem, registry.model):
        with pytest.raises(UserError, match="unknown"):
            make(name)


# A user's own code

# Of tensor2tensor 1.15.7's Problem, Text2TextProblem and TranslateProblem, without what begins with "_";
# and in the last two lines of ChoppedTextProblem and TranslateEnzhWmt8k.
T2T_HOOKS = """
    additional_reserved_tokens all_metrics_fns already_shuffled approx_vocab_size
    batch_size_means_tokens data_filepaths dataset dataset_filename dataset_splits
    datatypes_to_clean decode_example decode_hooks dev_filepaths eval_hooks eval_metric_fns
    eval_metrics example_reading_spec export_assets feature_encoders feature_info filepattern
    generate_data generate_encoded_samples generate_samples generate_text_for_vocab
    get_feature_encoders get_hparams get_or_create_vocab has_inputs hparams input_fn inputs_prefix
    is_generate_per_split make_estimator_input_fn max_length max_samples_for_vocab
    max_subtoken_length maybe_copy_features maybe_reverse_and_copy maybe_reverse_features
    multiprocess_generate num_generate_tasks num_training_examples oov_token packed_length
    packed_spacing prepare_to_generate preprocess preprocess_example serving_input_fn set_task_id
    skip_random_fraction_when_training source_data_files targets_prefix task_id test_filepaths
    tpu_batch_size_per_shard training_filepaths use_vocab_from_other_problem vocab_data_files
    vocab_filename vocab_type
    file_generator example_generator text_filepaths_for_task remainder_policy num_train_shards
    num_dev_shards source_vocab_name target_vocab_name get_training_dataset
"""


@pytest.mark.parametrize("hook", T2T_HOOKS.split())
def test_every_hook_is_called_or_named(hook):
    listed, own = t2t_names.names("hook"), type("MyOwn", (TranslateProblem,), {hook: None})
    named = t2t_names.uncalled_hooks(own)
    assert named.startswith(f"{hook} (") if hook in listed else not named
    assert hook in listed or hasattr(TranslateProblem, hook)
    assert set(listed) <= set(T2T_HOOKS.split())


def test_hooks_are_named_together_wherever_they_are_defined():
    base = type("Base", (Text2TextProblem,), {"feature_info": None})
    mixin = type("Mixin", (), dict.fromkeys(("eval_hooks", "decode_hooks")))
    assert t2t_names.uncalled_hooks(type("Both", (mixin, base), {})) == (
        "feature_info (every example has the ids of inputs and targets), eval_hooks, decode_hooks "
        "(define quality, which scores texts)"
    )
