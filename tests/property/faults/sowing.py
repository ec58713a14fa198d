"""Sows a fault in a copy of the sources, and finds the first test that notices."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import tests.unit.test_translate_cases  # noqa: F401 - for the processes that are forked
import vispark
from tests.property.faults.seeds import FAULTS, Fault

ROOT = Path(__file__).parents[3]
#: The tests that are fast enough to run on every fault: hand-picked cases, errors, and a sample of generated functions.
FAST = ("tests/unit/test_translate_errors.py", "tests/unit/test_translate_form.py",
        "tests/unit/test_translate_cases.py", "tests/property/test_differential.py")
_PARTS = ("vispark", "gpu_worker", "tests", "pyproject.toml")
#: A fault may make a loop without an end.
_SECONDS = 300
_CELLS = 3
_CASE = "test_the_kernel_does_what_the_function_does"
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class FaultOutcome:
    """Result of a fault: the first test that failed; empty if none did."""

    fault: Fault | None
    caught: str
    seconds: float


def copy(scratch: Path, name: str, root: Path = ROOT) -> Path:
    """Make a copy of the sources, without the compiled modules that another process is just writing."""
    target = scratch / re.sub(r"\W+", "-", name)
    target.mkdir()
    for part in _PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("*.cu", "*.pyc.*"))
        else:
            shutil.copy(source, target / part)
    return target


def sow(root: Path, fault: Fault) -> None:
    """Change the copy; ValueError if the text to change is not there exactly once."""
    file = root / "vispark" / "translate" / fault.file
    text = file.read_text()
    if text.count(fault.sound) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has {fault.sound!r} {text.count(fault.sound)} times")
    file.write_text(text.replace(fault.sound, fault.sown))


def run(root: Path, fault: Fault | None, first: str = "", tests: Sequence[str] = FAST) -> FaultOutcome:
    """Run tests on a copy with a fault in it; before all others the one that has caught it before."""
    if fault is not None:
        sow(root, fault)
    start = time.monotonic()
    try:
        file, _, case = first.partition(f"::{_CASE}[")
        known = _failing_case(root, file, case[:-1]) if case else first and _failure(root, [first])
        caught = known or _failure(root, [fault.tests] if fault and fault.tests else tests)
    finally:
        if fault is not None:
            shutil.rmtree(root)
    return FaultOutcome(fault, caught, time.monotonic() - start)


def _failing_case(root: Path, file: str, construct: str) -> str:
    """Return the error of a hand-picked case, alone, in a process that has loaded all but the translator before."""
    child = _FORK.Process(target=_try_case, args=(root, file, construct))
    child.start()
    child.join(_SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
        return "a kernel or the translator does not end"
    if child.exitcode < 0:
        return f"the process ends with {child.exitcode}"
    return f"{file.removeprefix('tests/')}: {_CASE}[{construct}]" if child.exitcode else ""


def _try_case(root: Path, file: str, construct: str) -> None:
    """End the process with what a case raises, if it does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.startswith(("tests.", "vispark.translate"))]:
        del sys.modules[name]
    vispark.__path__ = [str(root / "vispark")]
    cases = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    cases.UNIT = 1
    for case in cases.CASES:
        if case.construct == construct:
            getattr(cases, _CASE)(case)


def _failure(root: Path, tests: Sequence[str]) -> str:
    """Return the first of some tests that fails; empty if none does. Copies have no golden files."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p",
               "no:randomly", f"--timeout={_SECONDS}", "-k", "not is_the_one_that_is_kept", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, errors="replace",
                               timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "a kernel or the translator does not end"
    return _first_failure(ended)


def caught_before(file: Path) -> dict[str, str]:
    """Return the test that caught each fault, by the fault's name, from a table that was kept."""
    tests = {}
    for line in file.read_text().splitlines():
        cells = [cell.strip().replace(chr(92) + "|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == _CELLS and (test := re.fullmatch(r"(\S+\.py): (.+)", cells[-1])):
            tests[cells[0]] = f"tests/{test[1]}::{test[2]}"
    return tests


def _first_failure(ended: subprocess.CompletedProcess) -> str:
    if ended.returncode in (0, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+?\.py)(?:::(.*?))?(?: - .*)?$", ended.stdout, re.M)
    if failed is None:
        return f"the tests end with {ended.returncode}"
    return f"{failed[1]}: {failed[2]}" if failed[2] else failed[1]


def table(outcomes: Sequence[FaultOutcome], commit: str) -> str:
    """Return the outcomes as Markdown."""
    caught = sum(bool(outcome.caught) for outcome in outcomes)
    lines = ["# Faults sown into the translator", "",
             f"{len(outcomes)} faults at {commit}, each sown by itself: {caught} were caught, each by the test that is "
             "named. Without a fault all of these tests pass. `python -m tests.property.faults` makes this table.", "",
             "| fault | in | caught by |", "|---|---|---|"]
    lines += [f"| {outcome.fault.name} | `{outcome.fault.file}` | {outcome.caught.replace('|', chr(92) + '|')} |"
              for outcome in outcomes]
    return "\n".join(lines) + "\n"


__all__ = ["FAST", "FAULTS", "Fault", "FaultOutcome", "caught_before", "copy", "run", "sow", "table"]
