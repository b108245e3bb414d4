"""A step of the Transformer in plain PyTorch; started by `device_steps.py`."""

import torch
from step_timing import DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, answer
from torch_transformer import Transformer


def make_step(spec):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # TensorFloat-32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Transformer(
        spec["vocab"], spec["layers"], spec["hidden"], spec["filter"], spec["heads"], DROPOUT
    ).to(device)
    facts = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "gpu": device == "cuda",
        "versions": f"torch {torch.__version__}",
    }
    make = {"train": training, "decode": decoding}[spec["kind"]]
    run = make(spec, facts, model, device)

    def step():
        half = spec["precision"] != "float32"
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            run()
        if device == "cuda":
            torch.cuda.synchronize()
            facts["device_megabytes"] = torch.cuda.max_memory_allocated() / 1e6

    return step, facts


def training(spec, facts, model, device):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    forward = torch.compile(model) if spec["compiled"] else model
    source, targets = random_ids(spec, (2, spec["rows"], spec["length"]), device)
    shifted = torch.nn.functional.pad(targets, (1, 0))[:, :-1]
    facts["made"] = targets.numel()

    def run():
        logits = forward(source, shifted)
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), label_smoothing=LABEL_SMOOTHING
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run


def decoding(spec, facts, model, device):
    model.eval()
    rows, hypotheses, position = spec["rows"], spec["hypotheses"], spec["length"] // 2
    facts["made"] = rows * hypotheses
    dtype = torch.float32 if spec["precision"] == "float32" else torch.bfloat16
    last_ids = random_ids(spec, (rows, hypotheses), device)
    parents = torch.randint(hypotheses, (rows, hypotheses), device=device)
    parents = (parents + hypotheses * torch.arange(rows, device=device)[:, None]).flatten()
    shape = (rows * hypotheses, spec["heads"], position, spec["hidden"] // spec["heads"])
    caches = [
        [torch.randn(shape, device=device, dtype=dtype) for _ in range(2)]
        for _ in range(spec["layers"])
    ]
    with torch.no_grad(), torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
        memory = model.encode(random_ids(spec, (rows, spec["length"]), device))
        memories = model.memories(memory)
    step = torch.compile(model.step) if spec["compiled"] else model.step

    def run():
        with torch.no_grad():
            step(last_ids, position, parents, caches, memories)

    return run


def random_ids(spec, shape, device):
    return torch.randint(2, spec["vocab"], shape, device=device)


if __name__ == "__main__":
    answer(make_step)
