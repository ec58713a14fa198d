"""Runs of ``vispark run`` without Spark: a recording that is there, and a verdict that is known."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of
from vispark.migrate.cli import main
from vispark.migrate.commands import run_command
from vispark.migrate.record.shared_jvm import FirstRun
from vispark.migrate.validate.compare import Tolerance
from vispark.migrate.validate.validation import StatementResults, Validation, validated

#: Program whose loop is ported.
PORTED = '''
data = sc.textFile(path).map(float).cache()
for _ in range(9):
    w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)
'''


def recording(script: Path, monkeypatch: pytest.MonkeyPatch, saves: bool = False, failed: str = "") -> None:
    """Have the recording of a script be one in which all its functions are read."""
    text = script.read_text()
    calls = [CapturedCall(number, str(script), call.line, call.node.end_lineno, call.node.end_col_offset, call.method,
                          times=1, is_read=(call.method in ("map", "reduce") and "open" not in text) or None)
             for number, call in enumerate(run_command.SourceProgram(str(script), text).calls)]
    calls += [CapturedCall(99, str(script), 1, 1, 1, "saveAsTextFile", times=1)] if saves else []
    capture = RunCapture(str(script.resolve()), [], digest_of(text), calls=calls, sources={str(script): text})
    first = FirstRun(script.parent / "cpu.results", None, failed)
    monkeypatch.setattr(run_command, "recorded", lambda *_: nullcontext((capture, first)))


def verdict(monkeypatch: pytest.MonkeyPatch, other: float) -> None:
    """Have the program give 1, and its port another number."""
    def validate(*_: object, **__: object) -> Validation:
        runs = [[StatementResults(("", "w"), 4, (value,))] for value in (1.0, other)]
        return validated(runs[0], runs[0], runs[1], Tolerance())
    monkeypatch.setattr(run_command, "validate", validate)


def run(script: Path, text: str, *words: str) -> Result:
    """Run ``vispark run`` of a script with this text."""
    script.write_text(text)
    return CliRunner().invoke(main, ["run", *words, "--out", str(script.parent / "out"), str(script)])
