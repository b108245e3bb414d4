"""What setup.cfg cannot say: on PyPI, the links of README.md lead to the repository."""

import re
from pathlib import Path

from setuptools import setup

URL = "https://github.com/t2t-keras/t2t-keras"
PAGES = f"{URL}/blob/main"


def absolute(link: re.Match) -> str:
    kind = "raw" if link[1].endswith((".png", ".svg")) else "blob"
    return f"]({URL}/{kind}/main/{link[1]})"


readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", absolute, readme),
    url=URL,
    project_urls={
        "Documentation": f"{PAGES}/docs/README.md",
        "Changes": f"{PAGES}/CHANGELOG.md",
        "Issues": f"{URL}/issues",
    },
)
