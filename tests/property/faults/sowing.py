"""Sows a fault in a copy of the sources, and finds the first test that notices."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.property.faults.seeds import FAULTS, Fault

ROOT = Path(__file__).parents[3]
#: The tests that are fast enough to run on every fault: hand-picked cases, errors, and a sample of generated functions.
FAST = ("tests/unit/test_translate_errors.py", "tests/unit/test_translate_form.py",
        "tests/unit/test_translate_cases.py", "tests/property/test_differential.py")
_PARTS = ("vispark", "gpu_worker", "tests", "pyproject.toml")
#: A fault may make a loop without an end.
_SECONDS = 240


@dataclass(frozen=True)
class Outcome:
    """What caught a fault: the first test that failed; empty if none did."""

    fault: Fault | None
    caught: str
    seconds: float


def copy(scratch: Path, name: str, root: Path = ROOT) -> Path:
    """A copy of the sources."""
    found = scratch / re.sub(r"\W+", "-", name)
    found.mkdir()
    for part in _PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, found / part, ignore=shutil.ignore_patterns("__pycache__", "*.cu"))
        else:
            shutil.copy(source, found / part)
    return found


def sow(root: Path, fault: Fault) -> None:
    """Change the copy; ValueError if the text to change is not there exactly once."""
    file = root / "vispark" / "translate" / fault.file
    text = file.read_text()
    if text.count(fault.sound) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has {fault.sound!r} {text.count(fault.sound)} times")
    file.write_text(text.replace(fault.sound, fault.sown))


def run(root: Path, fault: Fault | None) -> Outcome:
    """Run the fast tests on a copy with a fault in it."""
    if fault is not None:
        sow(root, fault)
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p",
               "no:randomly", *FAST]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        made = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, errors="replace",
                              timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(fault, "a kernel or the translator does not end", time.monotonic() - start)
    finally:
        if fault is not None:
            shutil.rmtree(root)
    return Outcome(fault, _first_failure(made), time.monotonic() - start)


def _first_failure(made: subprocess.CompletedProcess) -> str:
    if made.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) tests/(\S+?\.py)(?:::(.*?))?(?: - .*)?$", made.stdout, re.M)
    if found is None:
        return f"the tests end with {made.returncode}"
    return f"{found[1]}: {found[2]}" if found[2] else found[1]


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as Markdown."""
    lines = ["# Faults sown into the translator", "",
             "Each is sown by itself; the first of the fast tests that fails is named. "
             "`python -m tests.property.faults` makes this table.", "",
             "| fault | in | caught by |", "|---|---|---|"]
    lines += [f"| {outcome.fault.name} | `{outcome.fault.file}` | {outcome.caught.replace('|', chr(92) + '|')} |"
              for outcome in outcomes]
    return "\n".join(lines) + "\n"


__all__ = ["FAST", "FAULTS", "Fault", "Outcome", "copy", "run", "sow", "table"]
