"""The Transformer in plain PyTorch with its fused attention, for comparison in `device_steps.py`."""

import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head attention without biases, on keys and values [N, H, S, C]."""

    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v, self.output = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(4)
        )

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_and_values(self, x):
        return self.split(self.k(x)), self.split(self.v(x))

    def forward(self, x, keys, values, causal=False):
        context = functional.scaled_dot_product_attention(
            self.split(self.q(x)),
            keys,
            values,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
        )
        return self.output(context.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """An encoder layer or, if it attends to a memory, a decoder layer."""

    def __init__(self, hidden, inner, heads, dropout, memory):
        super().__init__()
        self.own = Attention(hidden, heads, dropout)
        self.other = Attention(hidden, heads, dropout) if memory else None
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-6) for _ in range(2 + memory))
        self.first, self.second = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory=None, causal=False):
        y = self.norms[0](x)
        x = x + self.dropout(self.own(y, *self.own.keys_and_values(y), causal))
        if self.other is not None:
            x = self.attend(x, *self.other.keys_and_values(memory))
        return self.feed(x)

    def attend(self, x, keys, values):
        return x + self.dropout(self.other(self.norms[2](x), keys, values))

    def feed(self, x):
        inner = self.dropout(functional.relu(self.first(self.norms[1](x))))
        return x + self.dropout(self.second(inner))

    def step(self, x, cache, memory):
        """One position [B, K, D], with caches [B * K, H, t, C] and the memory of each sentence."""
        y = self.norms[0](x)
        rows = y.flatten(0, 1)[:, None]
        new = self.own.keys_and_values(rows)
        cache = [torch.cat(pair, 2) for pair in zip(cache, new, strict=True)]
        x = x + self.own(rows, *cache).view_as(x)
        return self.feed(self.attend(x, *memory)), cache


class Transformer(nn.Module):
    """Maps source ids [B, S] and target ids [B, T] to logits [B, T, V]."""

    def __init__(self, vocab, layers, hidden, inner, heads, dropout):
        super().__init__()
        self.table = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.table.weight, std=hidden**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.encoder, self.decoder = (
            nn.ModuleList(Layer(hidden, inner, heads, dropout, memory) for _ in range(layers))
            for memory in (False, True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-6) for _ in range(2))

    def embed(self, ids, start=0):
        """Embeds ids; positions count along the last axis, from `start`."""
        channels = self.table.embedding_dim
        half = channels // 2
        scale = -math.log(1e4) / (half - 1)
        frequency = torch.exp(torch.arange(half, device=ids.device) * scale)
        position = torch.arange(start, start + ids.shape[1], device=ids.device)
        angle = position[:, None] * frequency
        signal = torch.cat([angle.sin(), angle.cos()], -1)
        return self.dropout(self.table(ids) * channels**0.5 + signal)

    def encode(self, source):
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x)
        return self.norms[0](x)

    def forward(self, source, shifted):
        memory = self.encode(source)
        x = self.embed(shifted)
        for layer in self.decoder:
            x = layer(x, memory, causal=True)
        return self.norms[1](x) @ self.table.weight.T

    def memories(self, memory):
        """Keys and values of the encoder's output for every layer of the decoder."""
        return [layer.other.keys_and_values(memory) for layer in self.decoder]

    def step(self, last_ids, position, parents, caches, memories):
        """Logits [B, K, V] of the next token and the grown caches [B * K, H, t + 1, C].

        Args:
            last_ids: [B, K].
            parents: [B * K], the cache row that each hypothesis extends.
        """
        x = self.embed(last_ids.reshape(-1, 1), position).view(*last_ids.shape, -1)
        grown = []
        for layer, cache, memory in zip(self.decoder, caches, memories, strict=True):
            cache = [part.index_select(0, parents) for part in cache]
            x, cache = layer.step(x, cache, memory)
            grown.append(cache)
        return self.norms[1](x) @ self.table.weight.T, grown
