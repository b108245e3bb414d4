"""Beam search of CTranslate2 on our export or on OpenNMT-tf's; started by `decode.py`."""

import json
import os
import subprocess
import sys
import tempfile

import ctranslate2
from decode_timing import ALPHA, answer


def make_decode(spec):
    with tempfile.TemporaryDirectory() as parent:
        directory = os.path.join(parent, "model")
        # In a separate process, so that its memory is not counted; OpenNMT-tf also needs another Python.
        command = [spec["exporter_python"], __file__, json.dumps(spec), directory]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        compute_type = "int8" if spec["way"].endswith("_int8") else "float32"
        # The variable limits TensorFlow, too: one setting for all ways.
        threads = int(os.environ.get("TF_NUM_INTRAOP_THREADS") or len(os.sched_getaffinity(0)))
        translator = ctranslate2.Translator(
            directory, intra_threads=threads, compute_type=compute_type
        )

    word = "token" if spec["way"].endswith("_opennmt") else "word"

    def decode(batch, length):
        sentences = [[f"{word}{i}" for i in ids] for ids in batch]
        results = translator.translate_batch(
            sentences,
            beam_size=spec["beam"],
            length_penalty=ALPHA,
            min_decoding_length=length,
            max_decoding_length=length,
        )
        return sum(len(result.hypotheses[0]) for result in results)

    versions = f"CTranslate2 {ctranslate2.__version__}, {translator.compute_type}"
    return decode, {"versions": versions}


def export_ours(spec, directory):
    from decode_of_t2t_keras import make_model

    import t2t_keras as t2t
    from t2t_keras.export.ctranslate2 import export_ctranslate2

    words = [f"word{i}" for i in range(2, spec["vocab"])]
    encoder = t2t.text.TokenTextEncoder(None, vocab_list=words)
    export_ctranslate2(make_model(spec), {"inputs": encoder, "targets": encoder}, directory)


def export_opennmt(spec, directory):
    from step_of_opennmt import make_model

    model = make_model(spec)
    model.create_variables()
    ctranslate2.converters.OpenNMTTFConverter(model).convert(directory)


def export(spec, directory):
    opennmt = spec["way"].endswith("_opennmt")
    (export_opennmt if opennmt else export_ours)(spec, directory)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        export(json.loads(sys.argv[1]), sys.argv[2])
    else:
        answer(make_decode)
