"""T2T's decode hparams: those that work, those that do not, and ours."""

import inspect
import math
from types import SimpleNamespace

import pytest
from networks import small_model

from t2t_keras import decode_settings, decoding, serving
from t2t_keras.decode_settings import DECODE_SETTINGS, DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams

NUMBERS = ["nan", "inf", "-inf", "-1", "0", "1e20", str(10**20), "9" * 5000]


def test_reads_all_kinds_of_values():
    settings = DecodeSettings.parse(
        "alpha=0,beam_size=1, alpha=1.5,return_beams=True,t2t_batches=1,sampling_method=random,"
    )
    assert (settings.beam_size, settings.alpha) == (1, 1.5)
    assert settings.return_beams and settings.t2t_batches
    assert settings.sampling_method == "random"
    assert DecodeSettings.parse("") == DecodeSettings()
    assert DecodeSettings.parse("alpha=-0.5").alpha == -0.5


def test_extra_length_is_t2t_s_wherever_none_is_given():
    translate = inspect.signature(serving.CTranslate2Translator.translate)
    assert DecodeSettings().extra_length == translate.parameters["extra_length"].default == 100


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
        ("use_last_position_only=maybe", "the last position only.: leave it out"),
        ("beam_size=four", "beam_size must be an integer of at least 1, got 'four'"),
        ("long_inputs=crop", "long_inputs must be one of cut, skip, got 'crop'"),
        ("sampling_method=randm", r"argmax, random, got 'randm'. Did you mean 'random'\?"),
        ("sampling_temp=0", "sampling_temp must be a number from 1e-30 to 100000.0, got 0.0"),
        ("sampling_keep_top_p=1.1", "sampling_keep_top_p must be a number above 0 and at most 1"),
        ("sampling_method=random", "draws one output, got beam_size=4: give beam_size=1, too"),
        ("beam_size=100000000000000000000", r"got 100000000000000000000: the maximum is \d+"),
        ("sampling_temp=1e-300", "got 1e-300: float32 cannot hold it"),
        ("shards=2", "shards of tensor2tensor has no effect here .every line of --decode_from_fil"),
        ("delimiter=;", "delimiter of tensor2tensor has no effect here .each line is a sentence"),
        ("vgg_ckpt_path=x", "images and videos are not decoded"),
        ("min_length_ratio=0.5", "min_length makes them longer"),
    ],
)
def test_errors_are_one_line(text, message, refused):
    with refused(message):
        DecodeSettings.parse(text)


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
    assert DecodeSettings(batch_size=3, batch_tokens=5).deciding() == DecodeSettings().deciding()
    for changes in ({"t2t_batches": True}, {"beam_size": 1, "sampling_method": "random"}):
        one, other = (DecodeSettings(batch_size=n, **changes).deciding() for n in (3, 4))
        assert one != other


@pytest.mark.parametrize("written", NUMBERS)
@pytest.mark.parametrize("name", DECODE_SETTINGS)
def test_every_decode_hparam_takes_or_refuses_any_number(name, written):
    setting = DECODE_SETTINGS[name]
    try:
        value = getattr(DecodeSettings.parse(f"{name}={written}"), name)
    except UserError as error:
        assert str(error).startswith(f"decode hparam {name} must be {setting.description}, got ")
        assert "\n" not in str(error)
    else:
        assert value == setting.checked(name, value)
        assert setting.kind is str or math.isfinite(value)


def test_a_search_beyond_the_machines_memory_is_refused(monkeypatch):
    monkeypatch.setattr(decode_settings, "_machine_memory", lambda: 16 * 2**30)
    base = SimpleNamespace(target_vocab_size=33708, members=[SimpleNamespace(hp=HParams("base"))])
    DecodeSettings(extra_length=1000).require_memory(base)
    words = r"need about [\d,]+ GiB of memory, but the machine has 16: lower beam_size"
    for text in ("extra_length=1000000000", "beam_size=100000"):
        with pytest.raises(UserError, match=words):
            DecodeSettings.parse(text).require_memory(base)


@pytest.mark.parametrize(
    ("search", "options"),
    [
        ("beam_search", {"beam_size": 10**7}),
        ("beam_search", {"extra_length": 2**30}),
        ("greedy", {"max_lengths": [5, 2**31 - 1]}),
        ("sample", {"seed": 1, "extra_length": 10**8}),  # too long for two sentences
    ],
)
def test_so_it_is_in_python(monkeypatch, search, options):
    monkeypatch.setattr(decode_settings, "_machine_memory", lambda: 2**30)
    with pytest.raises(UserError, match=r"GiB of memory, but the machine has 1: "):
        getattr(decoding, search)(small_model(), [[5, 1], [6, 1]], **options)


def test_the_machines_memory_is_that_of_its_control_group(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1073741824\n")
    monkeypatch.setattr(decode_settings, "Path", lambda path: tmp_path / "memory.max")
    assert decode_settings._machine_memory() == 2**30
    (tmp_path / "memory.max").write_text("max\n")
    assert decode_settings._machine_memory() > 2**30
