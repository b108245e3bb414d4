"""A training step of Hugging Face's Marian, PyTorch; started by `train_step.py`."""

import torch
import transformers
from step_timing import DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, answer


def make_step(spec):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = make_model(spec, device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    run = torch.compile(model) if spec["compiled"] else model
    ids = [
        torch.randint(2, spec["vocab"], (spec["rows"], spec["length"]), device=device)
        for _ in range(2)
    ]
    mask = torch.ones_like(ids[0])
    shifted = torch.nn.functional.pad(ids[1], (1, 0))[:, :-1]
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(spec["precision"])

    def step():
        with torch.autocast(device, dtype=half or torch.bfloat16, enabled=half is not None):
            logits = run(
                input_ids=ids[0], attention_mask=mask, decoder_input_ids=shifted, use_cache=False
            ).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), ids[1].flatten(), label_smoothing=LABEL_SMOOTHING
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    return step, {"versions": versions, "parameters": sum(p.numel() for p in model.parameters())}


def make_model(spec, device):
    config = transformers.MarianConfig(
        vocab_size=spec["vocab"],
        d_model=spec["hidden"],
        encoder_layers=spec["layers"],
        decoder_layers=spec["layers"],
        encoder_attention_heads=spec["heads"],
        decoder_attention_heads=spec["heads"],
        encoder_ffn_dim=spec["filter"],
        decoder_ffn_dim=spec["filter"],
        activation_function="relu",
        dropout=DROPOUT,
        attention_dropout=DROPOUT,
        activation_dropout=DROPOUT,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    return transformers.MarianMTModel(config).to(device)


if __name__ == "__main__":
    answer(make_step)
