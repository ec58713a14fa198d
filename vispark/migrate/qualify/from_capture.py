"""Qualification of a program by the recording of one run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath

from vispark.migrate.capture.recorded_program import (
    asking_reading,
    asking_recorded,
    asking_rows,
    programs_of,
    promised_keys,
    recorded_calls,
    recorded_there,
)
from vispark.migrate.capture.run_capture import CapturedCall, RunCapture
from vispark.migrate.errors import SourceError
from vispark.migrate.predict.loop_prediction import PredictionTarget, predicted_loop
from vispark.migrate.qualify.dataframes import answers
from vispark.migrate.rules.advice import LoopAdvice, Qualification
from vispark.migrate.rules.functions import FOLDS_BY_KEY
from vispark.migrate.rules.loop_rules import LoopRules
from vispark.migrate.source.modules_beside import called_in_loops
from vispark.migrate.source.program import RddCall, SourceProgram


def qualify_capture(capture: RunCapture, target: PredictionTarget | None = None) -> Qualification:
    """Return the verdicts on the loops of a recorded program, with the types and the keys that occurred.

    Parameters
    ----------
    capture : RunCapture
    target : PredictionTarget, optional
        Devices on which its loops are predicted.
    """
    loops, notes, predictions = [], list(_notes(capture)), []
    for program in programs_of(capture, notes):
        recorded = recorded_calls(program, capture)
        for loop, calls in program.loops().items():
            rules = LoopRules(program, loop, calls, asking_recorded(recorded), True, dict(_details(program, recorded)),
                              asking_rows(program, recorded, capture), asking_reading(recorded))
            timed = _timed(rules.advice(), [recorded[call] for call in calls if call in recorded])
            predicted = predicted_loop(timed, rules.verdicts, recorded, capture, target) if target else []
            loops.append(replace(timed, predictions=tuple([line for each in predicted for line in each.lines()])))
            predictions += [{"line": timed.line, **each.document()} for each in predicted]
        if len(program.parts) == 1:
            notes += called_in_loops(program, [SourceProgram(other, text) for other, text in capture.sources.items()
                                               if other != program.file and recorded_there(other, capture)])
    extra = {"failed": capture.failed} | ({"predictions": predictions} if target else {})
    return Qualification("recording", PurePath(capture.script).name, tuple(loops), tuple(notes), capture.seconds,
                         bool(capture.calls) or not capture.failed, extra)


def _details(program: SourceProgram, recorded: dict[RddCall, CapturedCall]) -> Iterator[tuple[RddCall, str]]:
    for call, captured in recorded.items():
        if captured.records:
            yield call, captured.records
        elif captured.keys:
            name = promised_keys(program, call, captured)
            yield call, f"{f'numKeys={name}; ' if name else ''}keys {captured.keys[0]} .. {captured.keys[1]} seen"
        elif captured.keys == []:
            yield call, "its keys are no integers from 0 on: numKeys= cannot be given"
        elif captured.method in FOLDS_BY_KEY:
            yield call, "its keys were not seen: numKeys=... where they are integers from 0 on"


def _timed(advice: LoopAdvice, calls: list[CapturedCall]) -> LoopAdvice:
    """Return a loop with its passes: from one run of its first action to the next one."""
    actions = [call for call in calls if call.starts]
    passes = max([call.times for call in calls], default=0)
    if not actions:
        return replace(advice, passes=passes)
    first = min(actions, key=lambda call: call.starts[0])
    ends = [*first.starts[1:], max(call.starts[-1] + call.seconds[-1] for call in actions)]
    seconds = [end - start for start, end in zip(first.starts, ends, strict=True)]
    later = seconds[1:] or seconds
    low, middle, high = statistics.quantiles(later, n=4, method="inclusive") if len(later) > 1 else later * 3
    return replace(advice, passes=len(seconds), first=seconds[0], low=low, middle=middle, high=high)


def _notes(capture: RunCapture) -> Iterator[str]:
    if capture.failed:
        yield f"the program ended by {capture.failed}: what comes behind that is not known"
    if not capture.calls:
        yield "no operation of an RDD ran"
        for file, text in capture.sources.items():
            with suppress(SourceError):
                program = SourceProgram(file, text)
                yield from () if program.calls else answers(program)
