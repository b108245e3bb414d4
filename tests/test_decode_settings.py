"""T2T's decode hparams: those that work, those that do not, and ours."""

import inspect

import pytest

from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError


def test_reads_all_kinds_of_values():
    settings = DecodeSettings.parse(
        "beam_size=1, alpha=1.5,return_beams=True,t2t_batches=1,sampling_method=random,"
    )
    assert (settings.beam_size, settings.alpha) == (1, 1.5)
    assert settings.return_beams and settings.t2t_batches
    assert settings.sampling_method == "random"
    assert DecodeSettings.parse("") == DecodeSettings()


def test_alpha_may_be_below_0():
    assert DecodeSettings.parse("alpha=-0.5").alpha == -0.5


def test_extra_length_is_t2t_s_wherever_none_is_given():
    """100 in T2T's `decode_hparams`."""
    from t2t_keras import decoding, serving

    searches = (
        decoding.greedy,
        decoding.beam_search,
        decoding.sample,
        serving.CTranslate2Translator.translate,
    )
    defaults = [inspect.signature(search).parameters["extra_length"].default for search in searches]
    assert {*defaults, DecodeSettings().extra_length} == {100}


def test_t2t_s_names_with_the_values_that_are_done_anyway():
    line = (
        r"delimiter=\n,num_samples=-1,identity_output=False,log_results=false,min_length_ratio=0.0,"
        "eos_penalty=0,shards=1,decode_to_file=,mlperf_threshold=25,use_last_position_only=True"
    )
    assert DecodeSettings.parse(line) == DecodeSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beem_size=4", r"unknown decode hparam 'beem_size'.* Did you mean 'beam_size'\?"),
        ("num_decods=4", r"unknown decode hparam 'num_decods'.* Did you mean 'num_decodes'\?"),
        ("use_last_position_only=maybe", "last position alone.: leave it out"),
        ("beam_size=four", "beam_size takes a value of type int, got '=four'"),
        ("beam_size", "beam_size takes a value of type int, got ''"),
        ("alpha=0,beam_size=1,alpha=0", "alpha is set twice in 'alpha=0,beam_size=1,alpha=0'"),
        ("return_beams=yes", "return_beams takes a value of type bool"),
        ("beam_size=0", "beam_size must be 1 or more, got 0"),
        ("extra_length=-1", "extra_length must be 0 or more, got -1"),
        ("alpha=nan", "alpha must be a number, got nan"),
        ("long_inputs=crop", "long_inputs must be cut or skip, got 'crop'"),
        ("sampling_method=randm", r"argmax or random, got 'randm'. Did you mean 'random'\?"),
        ("sampling_temp=0", "sampling_temp must be more than 0, got 0.0"),
        ("sampling_keep_top_p=1.1", "sampling_keep_top_p must be more than 0 and 1 at most"),
        ("sampling_method=random", "draws one output, got beam_size=4: give beam_size=1, too"),
        ("shards=2", "shards of tensor2tensor has no effect here .every line of --decode_from_fil"),
        ("delimiter=;", "delimiter of tensor2tensor has no effect here .a sentence is a line"),
        ("log_results=true", "log_results of tensor2tensor has no effect here"),
        ("vgg_ckpt_path=x", "images and videos are not decoded"),
        ("min_length_ratio=0.5", "min_length makes it longer"),
    ],
)
def test_refuses_in_one_line(text, message):
    with pytest.raises(UserError, match=message) as refused:
        DecodeSettings.parse(text)
    assert "\n" not in str(refused.value)


def test_every_decode_hparam_of_t2t_is_known():
    """The names of T2T 1.15's `decode_hparams`, from its file of 2020, and one of its first releases."""
    names = """save_images log_results extra_length min_length_ratio batch_size beam_size alpha
        eos_penalty block_size guess_and_check_top_k guess_and_check_epsilon insertion_parallel
        return_beams write_beam_scores max_input_size identity_output num_samples delimiter
        decode_to_file decode_reference decode_in_memory decode_timeout_mins summaries_log_dir
        shards shard_id shards_start_offset shard_google_format num_decodes force_decode_length
        display_decoded_images multiproblem_task_id frames_per_second skip_eos_postprocess
        border_percent max_display_outputs max_display_decodes vgg_ckpt_path mlperf_decode_step
        mlperf_threshold mlperf_success export_extra_infer_outputs use_last_position_only"""
    for name in names.split():
        try:
            DecodeSettings.parse(f"{name}=other")
        except UserError as error:
            assert "unknown" not in str(error)


def test_batches_decide_nothing_unless_they_do():
    plain = DecodeSettings(batch_size=3, batch_tokens=5).deciding()
    assert plain == DecodeSettings().deciding()
    drawn = {"beam_size": 1, "sampling_method": "random"}
    for settings in ({"t2t_batches": True}, drawn):
        one, other = (DecodeSettings(batch_size=n, **settings).deciding() for n in (3, 4))
        assert one != other
