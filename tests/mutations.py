"""Files damaged by chance: bytes changed, cut, moved or doubled, and JSON of another shape."""

import contextlib
import json
import os

SCALE, SEED = (int(os.environ.get(f"PROPERTY_{k}", n)) for k, n in (("SCALE", 1), ("SEED", 0)))
NUMBER = 60 * SCALE  # of each format

_VALUES = (
    *(None, True, 0, 1, -1, 7, 0.5, 1e308, 10**20, -(10**20), 2**31, 2**63, 10**400),
    *(float("nan"), float("-inf"), "", "x", "1", "model.ckpt-2", "a/../b", "\0", "ü\u202e\x1b[2J"),
    *("\ud800", "9" * 5000, "2026-01-01T00:00:00+00:00", [], {}, [[]], [{}], {"": []}, [None]),
)


def mutated(content, chance):
    content = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        start = chance.randrange(len(content) + 1)
        end = min(len(content), start + chance.choice((1, 1, 4, 40, 4000)))
        part = bytes(content[start:end])
        flipped = bytes([byte ^ 1 << chance.randrange(8) for byte in part])
        other = [b"", part * 2, part[::-1], bytes(len(part)), b"\xff" * len(part), flipped]
        other += [chance.randbytes(8), b"\n", b'"', b"[" * 100_000, b"{}", b"-", b"0" * 30]
        content[start:end] = chance.choice(other)
    return bytes(content)


def mutated_json(value, chance):
    """Returns a text of JSON with another value, a name or an element in another place."""
    value = json.loads(json.dumps(value))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        value = _changed(value, chance)
    return json.dumps(value).encode()


def _changed(value, chance):
    if not value or not isinstance(value, dict | list) or chance.random() < 0.1:
        return json.loads(json.dumps(chance.choice(_VALUES)))
    place = chance.choice([*value] if isinstance(value, dict) else range(len(value)))
    action = chance.randrange(7)
    if action == 0:
        del value[place]
    elif action == 1 and isinstance(value, dict):
        value[chance.choice(["", "x", *map(str, value)])] = value.pop(place)
    else:
        other = {2: [value[place]], 3: {"a": value[place]}}
        value[place] = other.get(action) or _changed(value[place], chance)
    return value


def mutations(content, chance):
    """Yields `NUMBER` mutations of a file; half of them keep JSON what it is, if it is JSON."""
    value = None
    with contextlib.suppress(ValueError):
        value = json.loads(content)
    for number in range(NUMBER):
        yield mutated_json(value, chance) if value and number % 2 else mutated(content, chance)
