"""Predictions of a program's loops in the store, beside what its port measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vispark.migrate.figure_texts import seconds_text
from vispark.migrate.predict.loop_prediction import PredictionTarget
from vispark.migrate.predict.physics import Interval
from vispark.migrate.rules.advice import LoopAdvice, Qualification
from vispark.migrate.store.history import History
from vispark.migrate.store.validations import loop_of
from vispark.migrate.validate.validation import Validation


def keep_predictions(history: History, job: int, answer: Qualification, validation: Validation | None = None) -> None:
    """Write the predicted passes of a program's loops to the store.

    Parameters
    ----------
    history : History
        The store.
    job : int
        The program's.
    answer : Qualification
        Of its recording, with predictions.
    validation : Validation, optional
        Of its port. A prediction is kept with the line of the statement of its loop that was measured; without one,
        with the line of the loop.
    """
    for line, prediction, _ in _predicted(answer, validation):
        low, high = prediction["pass"]
        history.add_prediction(job, line, prediction["device"], low, high)


@dataclass(frozen=True)
class ComparedPass:
    """Pass of a loop's port: seconds that were measured, between which it was predicted, and the line of its loop.

    Examples
    --------
    >>> one = ComparedPass(3, 0.001, 0.004, 0.005)
    >>> str(one), one.ratio, one.is_within(2)
    ('line 3: a pass of 5 ms, predicted 1 .. 4 ms: 2.5 of the middle of what was predicted', 2.5, False)
    """

    line: int
    low: float
    high: float
    measured: float

    @property
    def ratio(self) -> float:
        """The measured seconds over the middle of the predicted ones, which is the geometric one."""
        return self.measured / (self.low * self.high) ** 0.5

    def is_within(self, factor: float) -> bool:
        """Return whether the middle of what was predicted is within a factor of what was measured."""
        return 1 / factor <= self.ratio <= factor

    def __str__(self) -> str:
        verdict = "as predicted" if self.low <= self.measured <= self.high else \
            f"{self.ratio:.2g} of the middle of what was predicted"
        return (f"line {self.line}: a pass of {seconds_text(self.measured)}, predicted "
                f"{Interval(self.low, self.high)}: {verdict}")


def predicted_passes(answer: Qualification, target: PredictionTarget, validation: Validation) -> list[ComparedPass]:
    """Return the passes that were predicted for the device on which a port ran, and measured."""
    return [ComparedPass(line, each["pass"][0], each["pass"][1], seconds)
            for line, each, seconds in _predicted(answer, validation)
            if seconds is not None and target.is_here(each["device"])]


def _predicted(answer: Qualification,
               validation: Validation | None) -> Iterator[tuple[int, dict[str, Any], float | None]]:
    """Yield the predictions that there are, each with its line and the measured seconds of its port's pass."""
    for prediction in answer.extra.get("predictions", []):
        if prediction["pass"] is not None:
            loop = next(one for one in answer.loops if one.line == prediction["line"])
            line, seconds = measured_pass(loop, validation) if validation is not None else (loop.line, None)
            yield line, prediction, seconds


def measured_pass(loop: LoopAdvice, validation: Validation) -> tuple[int, float | None]:
    """Return the first statement of a loop that ran in each pass, by its line, and the median seconds of its port's.

    It may be in a function that the loop calls. Where there is none, the loop's line, and None.
    """
    lines = {each.line for each in loop.advice}
    last = max(lines, default=loop.line)
    inside = [each for each in validation.statements if loop.line < each.reference.line <= last]
    called = [each for each in validation.statements
              if each.reference.line in lines and len(each.reference.values) == loop.passes]
    for statement in (*inside, *called):
        passes = loop_of(statement.other)
        if passes is not None:
            return statement.reference.line, float(passes["median"])
    return loop.line, None
