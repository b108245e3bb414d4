"""Writes docs/settings.md from the tables of settings: `python docs/generate_settings.py`."""

from __future__ import annotations

from pathlib import Path

from t2t_keras.decode_settings import DECODE_SETTINGS
from t2t_keras.settings import GROUPS, OURS, SETTINGS, Setting

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Settings

Every setting of `--hparams` and `--decode_hparams`, written from the package's own tables by `python docs/generate_settings.py`.
Defaults are those of `transformer_base_v1`, T2T's set that is closest to the paper's base model (which is `paper_base`); a set such as `transformer_base` has its own values.
A value outside of what is allowed, an unknown name and a name that is given twice are errors of one line.
"""
INERT = """## Without effect here

Settings of tensor2tensor that keep their names and values, so that its files can be read. Changing one is an error that gives
the reason.

| reason | settings |
|---|---|
"""


def page() -> str:
    """Returns the whole page."""
    parts = [HEAD]
    for title, (_, group) in GROUPS.items():
        note = ""
        if ours := [f"`{name}`" for name in group if name in OURS]:
            note = f"T2T's sets do not have {', '.join(ours)}.\n\n"
        parts.append(f"## {title}\n\n{note}{table(group)}")
    reasons: dict[str, list[str]] = {}
    for name, setting in SETTINGS.items():
        if setting.inert:
            reasons.setdefault(setting.inert, []).append(f"`{name}`")
    parts.append(
        INERT + "".join(f"| {why} | {', '.join(names)} |\n" for why, names in reasons.items())
    )
    parts.append("## Decode hparams\n\n" + table(DECODE_SETTINGS))
    return "\n".join(parts)


def table(settings: dict[str, Setting]) -> str:
    """Returns a row for each setting: its name, default, allowed values and meaning."""
    rows = ["| setting | default | allowed | |", "|---|---|---|---|"]
    for name, setting in settings.items():
        default = "" if setting.default in ("", ()) else f"`{written(setting.default)}`"
        rows.append(f"| `{name}` | {default} | {setting.description} | {setting.text} |")
    return "\n".join(rows) + "\n"


def written(value) -> str:
    """Returns a value in the grammar of `--hparams`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
