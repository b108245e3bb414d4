"""T2T's Transformer in plain numpy, written from its rules alone: what the tests compare with.

Float64 but for the masking, inference only, variables by T2T's names (embedding tables joined).
"""

import numpy as np

MASKED = -1e9


def logits(
    variables, hp, source, targets, source_vocab, target_vocab, target_space=0, packing=None
):
    """[B, S] and [B, T] ids -> [B, T, V]; raises KeyError where a name is not T2T's.

    Args:
        targets: with `prepend_mode`, the rows that the decoder reads.
        packing: of packed rows, T2T's four features: segmentation and position of both sides.
    """
    net = _Network(variables, hp)
    source_table, target_table, softmax = net.tables(source_vocab, target_vocab)

    x = net.embed(source_table, source)  # [B, S, D]
    padding = np.abs(x).sum(-1) == 0
    visible = padding[:, None, None, :] * MASKED
    memory_bias = visible
    if packing:
        padding = packing["inputs_segmentation"] == 0
        visible = other_segment(packing["inputs_segmentation"], packing["inputs_segmentation"])
        memory_bias = other_segment(packing["targets_segmentation"], packing["inputs_segmentation"])
    length = source.shape[1]
    bias = lower_triangle(length) if hp.unidirectional_encoder else visible
    if hp.proximity_bias:
        bias = bias + proximal(length)
    if hp.use_target_space_embedding:
        x = x + net["body/target_space_embedding/kernel"][target_space]
    x = net.add_positions(x, "inputs", packing)
    unpadded = padding if hp.use_pad_remover else None
    for i in range(hp.num_encoder_layers or hp.num_hidden_layers):
        layer = f"body/encoder/layer_{i}"
        x = net.sublayer(x, f"{layer}/self_attention", net.attention, bias=bias, relative=True)
        x = net.sublayer(x, f"{layer}/ffn", net.feed_forward, unpadded)
    memory = net.process(x, hp.layer_preprocess_sequence, "body/encoder/layer_prepostprocess")

    length = targets.shape[1]
    bias = lower_triangle(length) if hp.prepend_mode == "none" else prepended(hp, targets)
    if packing:
        segments = packing["targets_segmentation"]
        bias = bias + other_segment(segments, segments)
    if hp.proximity_bias:
        bias = bias + proximal(length)
    y = net.embed(target_table, targets)
    y = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], axis=1)
    y = net.add_positions(y, "targets", packing)
    over_memory = {"memory": memory, "bias": memory_bias}
    for i in range(hp.num_decoder_layers or hp.num_hidden_layers):
        layer = f"body/decoder/layer_{i}"
        y = net.sublayer(y, f"{layer}/self_attention", net.attention, bias=bias, relative=True)
        y = net.sublayer(y, f"{layer}/encdec_attention", net.attention, **over_memory)
        y = net.sublayer(y, f"{layer}/ffn", net.feed_forward)
    y = net.process(y, hp.layer_preprocess_sequence, "body/decoder/layer_prepostprocess")
    return y @ softmax.T


def prepended(hp, rows):
    """The bias of T2T's rows of `prepend_mode`: inputs, a 0, targets, then padding."""
    bias = np.zeros((*rows.shape, rows.shape[1]))
    for row, hidden in zip(rows, bias, strict=True):
        separator = list(row).index(0)
        for query in range(len(row)):
            for key in range(len(row)):
                both = max(query, key) <= separator and "full" in hp.prepend_mode
                hidden[query, key] = MASKED * (key > query and not both)
    return bias[:, None]


def lower_triangle(length):
    return (1 - np.tri(length))[None, None] * MASKED


def other_segment(queries, keys):
    return (queries[:, None, :, None] != keys[:, None, None, :]) * MASKED


def proximal(length):
    position = np.arange(length)
    return -np.log1p(np.abs(position[None, :] - position[:, None]))[None, None]


def timing_signal(length, channels):
    """Sines, then cosines, of timescales from 1 to 1e4; an odd last channel is zero."""
    timescales = channels // 2
    rates = np.exp(-np.arange(timescales) * np.log(1e4) / max(timescales - 1, 1))
    angles = np.arange(length)[:, None] * rates
    return np.pad(np.concatenate([np.sin(angles), np.cos(angles)], 1), [(0, 0), (0, channels % 2)])


def timing_signal_of_the_paper(length, channels):
    channel = np.arange(channels)
    angles = np.arange(length)[:, None] / 10000 ** (2 * (channel // 2) / channels)
    return np.where(channel % 2 == 0, np.sin(angles), np.cos(angles))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class _Network:
    def __init__(self, variables, hp):
        self.variables = {name: np.asarray(v, np.float64) for name, v in variables.items()}
        self.hp = hp

    def __getitem__(self, name):
        return self.variables[f"transformer/{name}"]

    def tables(self, source_vocab, target_vocab):
        """Embeddings of both sides, and the softmax: one table where they share it."""
        hp, divisor = self.hp, self.hp.vocab_divisor
        source_vocab += -source_vocab % divisor
        target_vocab += -target_vocab % divisor
        tied = hp.shared_embedding_and_softmax_weights and source_vocab == target_vocab
        shared = tied or hp.shared_embedding
        source = f"symbol_modality_{source_vocab}_{hp.hidden_size}"
        target = f"symbol_modality_{target_vocab}_{hp.hidden_size}"
        return (
            self[f"{source}/{'shared' if shared else 'input_emb'}"],
            self[f"{target}/{'shared' if shared else 'target_emb'}"],
            self[f"{target}/{'shared' if tied else 'softmax'}"],
        )

    def embed(self, table, ids):
        x = table[ids] * (ids != 0)[..., None]
        return x * self.hp.hidden_size**0.5 if self.hp.multiply_embedding_mode != "none" else x

    def add_positions(self, x, side, packing):
        length, channels = x.shape[1:]
        if self.hp.pos == "timing":
            signal = timing_signal(length, channels)
        elif self.hp.pos == "timing_paper":
            signal = timing_signal_of_the_paper(length, channels)
        elif self.hp.pos == "emb":
            table = self[f"body/{side}_positional_embedding"][:length]
            signal = np.pad(table, [(0, length - len(table)), (0, 0)])
        else:
            return x
        return x + (signal[packing[f"{side}_position"]] if packing else signal)

    def sublayer(self, x, scope, function, *args, **kwargs):
        y = self.process(x, self.hp.layer_preprocess_sequence, f"{scope}/layer_prepostprocess")
        y = function(scope, y, *args, **kwargs)
        after = self.hp.layer_postprocess_sequence
        return self.process(y, after, f"{scope}/layer_postprocess", residual=x)

    def process(self, x, sequence, scope, residual=None):
        for letter in "" if sequence == "none" else sequence:
            if letter == "a":
                x = x + residual
            if letter == "n":
                centred = x - x.mean(-1, keepdims=True)
                variance = (centred**2).mean(-1, keepdims=True)
                x = centred / np.sqrt(variance + self.hp.norm_epsilon)
                x = x * self[f"{scope}/layer_norm/layer_norm_scale"]
                x = x + self[f"{scope}/layer_norm/layer_norm_bias"]
        return x

    def feed_forward(self, scope, x, padding=None):
        inner = np.maximum(x @ self[f"{scope}/conv1/kernel"] + self[f"{scope}/conv1/bias"], 0)
        y = inner @ self[f"{scope}/conv2/kernel"] + self[f"{scope}/conv2/bias"]
        return y if padding is None else np.where(padding[..., None], 0, y)

    def attention(self, scope, x, memory=None, *, bias, relative=False):
        scope = f"{scope}/multihead_attention"
        memory = x if memory is None else memory
        inputs = {"q": x, "k": memory, "v": memory}
        q, k, v = (self.heads(inputs[n] @ self[f"{scope}/{n}/kernel"]) for n in inputs)
        q = q * q.shape[-1] ** -0.5
        scores = np.einsum("bhtc,bhsc->bhts", q, k)
        relative = relative and self.hp.self_attention_type == "dot_product_relative"
        if relative:
            tables = f"{scope}/dot_product_attention_relative/relative_positions"
            m = self.hp.max_relative_position
            position = np.arange(x.shape[1])
            rows = np.clip(position[None, :] - position[:, None], -m, m) + m
            key_embeddings = self[f"{tables}_keys/embeddings"][rows]  # [T, S, C]
            value_embeddings = self[f"{tables}_values/embeddings"][rows]
            scores = scores + np.einsum("bhtc,tsc->bhts", q, key_embeddings)
        # In float32 as T2T, where a logit vanishes beside -1e9: a row that may look nowhere
        # attends evenly.
        weights = softmax((scores.astype(np.float32) + bias.astype(np.float32)).astype(float))
        context = np.einsum("bhts,bhsc->bhtc", weights, v)
        if relative:
            context = context + np.einsum("bhts,tsc->bhtc", weights, value_embeddings)
        context = context.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
        return context @ self[f"{scope}/output_transform/kernel"]

    def heads(self, x):
        return x.reshape(*x.shape[:2], self.hp.num_heads, -1).transpose(0, 2, 1, 3)
