"""Files damaged by chance: bytes changed, cut, moved or doubled, and JSON of another shape."""

import copy
import json
import os

NUMBER = int(os.environ.get("T2T_KERAS_MUTATIONS", "60"))
"""Mutations of each format."""

_VALUES = (
    *(None, True, False, 0, 1, -1, 7, 0.5, -0.0, 1e308, 10**20, -(10**20), 2**31, 2**63 - 1, 2**63),
    *(float("nan"), float("inf"), "", "x", "1", "model.ckpt-2", "a/../b", "\0", "ü\u202e\x1b[2J"),
    *("\ud800", "9" * 5000, "2026-01-01", "2026-01-01T00:00:00+00:00", [], {}, [[]], [{}]),
    *({"": []}, {"a": None}, [None], ["x"], [1, 2], [[["a"]]], 10**400, float("-inf")),
)


def mutated(content, chance):
    """Returns other bytes."""
    content = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        start = chance.randrange(len(content) + 1)
        end = min(len(content), start + chance.choice((1, 1, 4, 40, 4000)))
        part = bytes(content[start:end])
        other = (
            *(b"", part * 2, part[::-1], bytes(len(part)), b"\xff" * len(part), b"\xef\xbb\xbf"),
            chance.randbytes(8),
            bytes([byte ^ 1 << chance.randrange(8) for byte in part]),
            *(b"\n", b'"', b"[" * 100_000, b"{}", b"-", b"0" * 30),
        )
        content[start:end] = chance.choice(other)
        if chance.random() < 0.1:
            del content[chance.randrange(len(content) + 1) :]
    return bytes(content)


def mutated_json(value, chance):
    """Returns a text of JSON with another value, a name or an element in another place."""
    value = json.loads(json.dumps(value))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        value = _changed(value, chance)
    return json.dumps(value).encode()


def _changed(value, chance):
    if not value or not isinstance(value, dict | list) or chance.random() < 0.1:
        return copy.deepcopy(chance.choice(_VALUES))
    places = list(value) if isinstance(value, dict) else range(len(value))
    place = chance.choice(places)
    action = chance.randrange(8)
    if action == 0:
        del value[place]
    elif action == 1 and isinstance(value, dict):
        value[chance.choice(["", "x", *map(str, value)])] = value.pop(place)
    elif action == 2 and isinstance(value, list):
        value.insert(place, copy.deepcopy(chance.choice(_VALUES)))
    elif action == 3:
        value[place] = [value[place]]
    elif action == 4:
        value[place] = {"a": value[place]}
    else:
        value[place] = _changed(value[place], chance)
    return value


def mutations(content, chance):
    """Yields `NUMBER` mutations of a file; half of them keep JSON what it is, if it is JSON."""
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    for number in range(NUMBER):
        if value is not None and number % 2:
            yield mutated_json(value, chance)
        else:
            yield mutated(content, chance)
