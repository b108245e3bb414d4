"""Describes where a benchmark ran: the machine, the date, and package versions."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path

INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
"""Linux's names of the vector instructions that determine the speed of matrix products."""

_VERSIONS = """
import importlib.metadata as metadata, json, platform, sys
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def describe() -> str:
    """Returns one sentence: processor, cores, memory, date, and the load before the benchmark."""
    facts = _cpu_facts()
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    able = ", ".join(name for name in INSTRUCTIONS if name in flags)
    processor = facts.get("model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{cores} cores of {processor}{able and f' ({able})'}, "
        f"{memory:.0f} GB of memory, {platform.system()}; {time.strftime('%Y-%m-%d')}, "
        f"load {os.getloadavg()[0]:.1f} before it began."
    )


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Returns the versions of a Python and of its installed packages; {} if it does not run."""
    command = [python, "-c", _VERSIONS, *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return json.loads(done.stdout)


def _cpu_facts() -> dict[str, str]:
    """Returns Linux's facts about its first processor; {} on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}
