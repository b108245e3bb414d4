"""Measures the rate of matrix products in JAX; started by `device_steps.py`."""

import time

import jax
from step_timing import answer

SIZE = 8192
SIZE_ON_CPU = 2048


def make_step(spec):
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    device = jax.devices()[0]
    size = SIZE if device.platform == "gpu" else SIZE_ON_CPU
    a = jax.random.uniform(jax.random.key(0), (size, size)).astype(spec["precision"])
    product = jax.jit(lambda a, b: a @ b)
    rates: list[float] = []

    def step():
        start = time.perf_counter()
        product(a, a).block_until_ready()
        rates.append(2 * size**3 / (time.perf_counter() - start))

    return step, {"device": device.device_kind, "gpu": device.platform == "gpu", "rates": rates}


if __name__ == "__main__":
    answer(make_step)
