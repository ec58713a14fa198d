"""Predictions of a program's loops in the store, beside what its port measured."""

from __future__ import annotations

from vispark.migrate.advice import LoopAdvice, Qualification
from vispark.migrate.history import History
from vispark.migrate.kept_validation import loop_of
from vispark.migrate.loop_prediction import PredictionTarget
from vispark.migrate.predict import Interval
from vispark.migrate.report_page import seconds_text
from vispark.migrate.validation import Validation


def keep_predictions(history: History, job: int, answer: Qualification, target: PredictionTarget,
                     found: Validation | None = None) -> list[str]:
    """Write the predicted passes of a program's loops to the store, and return what was measured of them as text.

    Parameters
    ----------
    history : History
        The store.
    job : int
        The program's.
    answer : Qualification
        Of its recording, with predictions.
    target : PredictionTarget
        The devices that they are for, among them that on which the port ran.
    found : Validation, optional
        Of its port. A prediction is kept with the line of the statement of its loop that was measured; without one,
        with the line of the loop.
    """
    lines = []
    for each in answer.extra.get("predictions", []):
        if each["pass"] is None:
            continue
        loop = next(one for one in answer.loops if one.line == each["line"])
        line, seconds = measured_pass(loop, found) if found is not None else (loop.line, None)
        low, high = each["pass"]
        history.add_prediction(job, line, each["device"], low, high)
        if seconds is not None and target.is_here(each["device"]):
            said = "as predicted" if low <= seconds <= high else \
                f"{seconds / (low * high) ** 0.5:.2g} of the middle of what was predicted"
            lines.append(f"line {line}: a pass of {seconds_text(seconds)}, predicted {Interval(low, high)}: {said}")
    return lines


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
