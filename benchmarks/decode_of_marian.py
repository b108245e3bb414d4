"""Beam search of Hugging Face's Marian, PyTorch; started by `decode.py`."""

import torch
import transformers
from decode_timing import ALPHA, answer, padded
from step_of_marian import make_model


def make_decode(spec):
    torch.manual_seed(0)
    model = make_model(spec, "cpu").eval()

    @torch.inference_mode()
    def decode(batch, length):
        ids = torch.tensor(padded(batch))
        outputs = model.generate(
            input_ids=ids,
            attention_mask=(ids != 0).long(),
            num_beams=spec["beam"],
            do_sample=False,
            length_penalty=ALPHA,
            min_new_tokens=length,
            max_new_tokens=length,
        )
        return (outputs.shape[1] - 1) * len(batch)

    return decode, {
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}"
    }


if __name__ == "__main__":
    answer(make_decode)
