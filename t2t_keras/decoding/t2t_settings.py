"""What T2T's `decode_hparams` holds besides ours, and why it is not here."""

from __future__ import annotations

from t2t_keras.errors import UserError

_OTHERS: dict[str, dict[str, str]] = {
    "an output ends where its sentence does; min_length makes it longer": {
        "force_decode_length": "false",
        "min_length_ratio": "0.0",
        "skip_eos_postprocess": "false",
    },
    "the score of an end of sentence is the model's": {"eos_penalty": "0.0"},
    "outputs grow by one token at a time": {
        "block_size": "0",
        "guess_and_check_epsilon": "-1",
        "guess_and_check_top_k": "0",
        "insertion_parallel": "false",
    },
    "a sentence is a line": {"delimiter": r"\n"},
    "outputs are text, in a file of a line for each input": {
        "decode_in_memory": "false",
        "export_extra_infer_outputs": "",
        "identity_output": "false",
        "log_results": "false",
        "log_targets": "false",
    },
    "the flag --decode_to_file names it": {"decode_to_file": ""},
    "t2t-keras-bleu compares with a reference": {"decode_reference": ""},
    "every line of --decode_from_file is decoded, once": {
        "num_decodes": "1",
        "num_samples": "-1",
        "shard_google_format": "false",
        "shard_id": "0",
        "shards": "1",
        "shards_start_offset": "0",
    },
    "t2t-keras-eval waits for checkpoints and writes for TensorBoard": {
        "decode_timeout_mins": "240",
        "summaries_log_dir": "decode",
    },
    "a checkpoint is of one problem": {"multiproblem_task_id": "-1"},
    "images and videos are not decoded": {
        "border_percent": "2",
        "display_decoded_images": "false",
        "frames_per_second": "10",
        "max_display_decodes": "5",
        "max_display_outputs": "10",
        "save_images": "false",
        "vgg_ckpt_path": "",
    },
    "MLPerf's log is not written": {
        "mlperf_decode_step": "0.0",
        "mlperf_success": "false",
        "mlperf_threshold": "25.0",
    },
}
"""By reason: the names, and the value of each that says what is done anyway."""

_REASONS = {
    name: (value, reason) for reason, names in _OTHERS.items() for name, value in names.items()
}


def refuse_other_value(name: str, written: str) -> bool:
    """Whether T2T has a decode hparam of this name, given a value that changes nothing here.

    Raises:
        UserError: the value would change something.
    """
    if name not in _REASONS:
        return False
    value, reason = _REASONS[name]
    if not _same(written, value):
        raise UserError(
            f"decode hparam {name} of tensor2tensor has no effect here ({reason}): leave it out."
        )
    return True


def _same(written: str, value: str) -> bool:
    if written.lower() == value:
        return True
    try:
        return float(written) == float(value)
    except ValueError:
        return False
