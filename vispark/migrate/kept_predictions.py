"""Predictions of a program's loops in the store, beside what its port measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vispark.migrate.advice import LoopAdvice, Qualification
from vispark.migrate.history import History
from vispark.migrate.kept_validation import loop_of
from vispark.migrate.loop_prediction import PredictionTarget
from vispark.migrate.predict import Interval
from vispark.migrate.report_page import seconds_text
from vispark.migrate.validation import Validation


def keep_predictions(history: History, job: int, answer: Qualification, found: Validation | None = None) -> None:
    """Write the predicted passes of a program's loops to the store.

    Parameters
    ----------
    history : History
        The store.
    job : int
        The program's.
    answer : Qualification
        Of its recording, with predictions.
    found : Validation, optional
        Of its port. A prediction is kept with the line of the statement of its loop that was measured; without one,
        with the line of the loop.
    """
    for line, each, _ in _predicted(answer, found):
        low, high = each["pass"]
        history.add_prediction(job, line, each["device"], low, high)


def predicted_passes(answer: Qualification, target: PredictionTarget, found: Validation) -> list[str]:
    """Return as text what was measured of the passes that were predicted for the device on which a port ran."""
    lines = []
    for line, each, seconds in _predicted(answer, found):
        if seconds is not None and target.is_here(each["device"]):
            low, high = each["pass"]
            said = "as predicted" if low <= seconds <= high else \
                f"{seconds / (low * high) ** 0.5:.2g} of the middle of what was predicted"
            lines.append(f"line {line}: a pass of {seconds_text(seconds)}, predicted {Interval(low, high)}: {said}")
    return lines


def _predicted(answer: Qualification, found: Validation | None) -> Iterator[tuple[int, dict[str, Any], float | None]]:
    """Yield the predictions that there are, each with its line and the measured seconds of its port's pass."""
    for each in answer.extra.get("predictions", []):
        if each["pass"] is not None:
            loop = next(one for one in answer.loops if one.line == each["line"])
            line, seconds = measured_pass(loop, found) if found is not None else (loop.line, None)
            yield line, each, seconds


def measured_pass(loop: LoopAdvice, found: Validation) -> tuple[int, float | None]:
    """Return the first statement of a loop that ran in each pass, by its line, and the median seconds of its port's.

    Where there is none, the loop's line, and None.
    """
    last = max([each.line for each in loop.advice], default=loop.line)
    for each in found.statements:
        passes = loop_of(each.other)
        if loop.line < each.reference.line <= last and passes is not None:
            return each.reference.line, float(passes["median"])
    return loop.line, None
