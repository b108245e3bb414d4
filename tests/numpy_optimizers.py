"""T2T's optimizers in NumPy and float64, written from their papers and formulas alone."""

import numpy as np


class Adam:
    """Kingma and Ba, algorithm 1, with epsilon as in the text that follows it."""

    def __init__(self, beta_1, beta_2, epsilon, decay=0.0):
        self.beta_1, self.beta_2, self.epsilon, self.decay = beta_1, beta_2, epsilon, decay
        self.m = self.v = 0.0

    def update(self, value, gradient, rate, t):
        self.m = self.beta_1 * self.m + (1 - self.beta_1) * gradient
        self.v = self.beta_2 * self.v + (1 - self.beta_2) * gradient**2
        rate = rate * np.sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t)
        return value * (1 - self.decay) - rate * self.m / (np.sqrt(self.v) + self.epsilon)

    @property
    def slots(self):
        return [self.m, self.v]


class Momentum:
    """The rate multiplies the sum of what remains of earlier gradients and this one."""

    def __init__(self, momentum, nesterov):
        self.momentum, self.nesterov, self.sum = momentum, nesterov, 0.0

    def update(self, value, gradient, rate, t):
        self.sum = self.momentum * self.sum + gradient
        if self.nesterov:
            return value - rate * (gradient + self.momentum * self.sum)
        return value - rate * self.sum

    @property
    def slots(self):
        return [self.sum]


class SGD:
    slots = []

    def update(self, value, gradient, rate, t):
        return value - rate * gradient


class Adafactor:
    """Shazeer and Stern, algorithms 4 to 6; a factored matrix as the product that it stands for."""

    def __init__(
        self, beta_1, decay, threshold=1.0, factored=True, relative=True, first=1e-30, second=1e-3
    ):
        self.beta_1, self.decay, self.threshold = beta_1, decay, threshold
        self.factored, self.relative, self.first, self.second = factored, relative, first, second
        self.m = self.rows = self.columns = self.v = 0.0

    def update(self, value, gradient, rate, t):
        self.was_factored = self.factored and value.ndim > 1
        decay, squared = self.decay(t), gradient**2 + self.first
        if self.was_factored:
            self.rows = decay * self.rows + (1 - decay) * squared.mean(-1)
            self.columns = decay * self.columns + (1 - decay) * squared.mean(-2)
            product = self.rows[..., :, None] * self.columns[..., None, :]
            second_moment = product / self.rows.mean(-1)[..., None, None]
        else:
            second_moment = self.v = decay * self.v + (1 - decay) * squared
        step = gradient / np.sqrt(second_moment)
        step /= max(1.0, rms(step) / self.threshold)
        step *= rate * (max(self.second, rms(value)) if self.relative else 1.0)
        if self.beta_1:
            step = self.m = self.beta_1 * self.m + (1 - self.beta_1) * step
        return value - step

    @property
    def slots(self):
        second = [self.rows, self.columns] if self.was_factored else [self.v]
        return [self.m, *second] if self.beta_1 else second


def rms(x):
    return np.sqrt(np.mean(x**2))


def power(exponent):
    return lambda t: 1 - t**-exponent


def corrected(beta):
    return lambda t: beta * (1 - beta ** (t - 1)) / (1 - beta**t)
