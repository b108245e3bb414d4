"""Writes docs/settings.md from the tables of settings: `python docs/generate_settings.py`."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from t2t_keras.decode_settings import DECODE_SETTINGS
from t2t_keras.settings import GROUPS, OURS, SETTINGS, Setting

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Settings

Every setting of `--hparams` and `--decode_hparams`. Defaults are those of `transformer_base_v1`, T2T's set closest to the paper's
base model (`paper_base`); other sets have their own. T2T does not have the settings marked *. Unknown names and values
that are not allowed are errors; of a name given twice, the later value counts.
"""
INERT = """## Without effect here

Settings that are kept so that T2T's files can be read. Changing one is an error that says why.

| | |
|---|---|
"""
NOT_SUPPORTED = re.compile(r"([^,]*) (?:is|are) not supported")


def page() -> str:
    """Returns the whole page."""
    parts = [HEAD]
    parts += [f"## {title}\n\n{table(group, OURS)}" for title, (_, group) in GROUPS.items()]
    reasons: dict[str, list[str]] = {}
    for name, setting in SETTINGS.items():
        if setting.inert:
            reasons.setdefault(setting.inert, []).append(f"`{name}`")
    others, absent = [], []
    for why, names in reasons.items():
        if what := NOT_SUPPORTED.fullmatch(why):
            absent.append(f"{what[1]}: {', '.join(names)}")
        else:
            others += names
    parts.append(
        f"{INERT}| not supported | {'; '.join(absent)} |\n| others | {', '.join(others)} |\n"
    )
    parts.append("## Decode hparams\n\n" + table(DECODE_SETTINGS))
    return "\n".join(parts)


def table(settings: dict[str, Setting], marked: Collection[str] = ()) -> str:
    """Returns a row for each setting: its name, default, allowed values and meaning."""
    rows = ["| setting | default | allowed | |", "|---|---|---|---|"]
    for name, setting in settings.items():
        mark = " *" if name in marked else ""
        default = "" if setting.default in ("", ()) else f"`{written(setting.default)}`"
        rows.append(f"| `{name}`{mark} | {default} | {setting.description} | {setting.text} |")
    return "\n".join(rows) + "\n"


def written(value) -> str:
    """Returns a value in the grammar of `--hparams`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
