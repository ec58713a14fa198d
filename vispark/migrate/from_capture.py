"""Qualification of a program by the recording of one run."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from vispark.migrate.advice import LoopAdvice, Qualification
from vispark.migrate.capture import CapturedCall, RunCapture, digest_of
from vispark.migrate.errors import SourceError
from vispark.migrate.frames import answers
from vispark.migrate.functions import FOLDS_BY_KEY, Verdict
from vispark.migrate.joined import with_modules
from vispark.migrate.loop_prediction import PredictionTarget, predicted_loop
from vispark.migrate.modules_beside import called_in_loops
from vispark.migrate.row_functions import FunctionOfRow, rows_of
from vispark.migrate.rules import MAPS, NOT_CACHED, LoopRules
from vispark.migrate.sites import RddCall, SourceProgram
from vispark.migrate.typed import AS_DICTS, AS_TUPLES


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


def programs_of(capture: RunCapture, notes: list[str] | None = None) -> Iterator[SourceProgram]:
    """Yield the script with the modules beside it, and what else has operations; note what is no Python."""
    notes = [] if notes is None else notes
    programs = dict[str, SourceProgram]()
    for file, text in capture.sources.items():
        try:
            programs[file] = SourceProgram(file, text)
        except SourceError as error:
            notes.append(error.message)
    script, folder = programs.get(capture.script), Path(capture.script).parent
    beside = {file: each.source for file, each in programs.items() if file != capture.script
              and Path(file).is_relative_to(folder)}
    if script is not None:
        whole = with_modules(script, beside)
        yield whole
        programs = {file: each for file, each in programs.items() if file not in {part.file for part in whole.parts}}
    yield from (each for file, each in programs.items() if recorded_there(file, capture))


def recorded_there(file: str, capture: RunCapture) -> bool:
    """Return whether operations of a file were recorded; its source is Python's then."""
    return any(call.file == file for call in capture.calls)


def recorded_calls(program: SourceProgram, capture: RunCapture) -> dict[RddCall, CapturedCall]:
    """Return the calls of a program that ran, with their recordings: they end at one place."""
    first = dict[str, int]()
    for part in program.parts:
        first |= {part.file: part.first, str(Path(part.file).resolve()): part.first}
        if digest_of(part.source) == capture.digest:
            first[capture.script] = part.first
    places = {(call.end_line + first[call.file], call.end_column, call.method): call for call in capture.calls
              if call.file in first}
    return {call: places[place] for call in program.calls
            if (place := (call.node.end_lineno or 0, call.node.end_col_offset or 0, call.method)) in places}


def asking_recorded(recorded: dict[RddCall, CapturedCall]) -> Callable[[RddCall], Verdict | None]:
    """Return a function that gives the verdict on a call that the recorder had of the translator."""
    def ask(call: RddCall) -> Verdict | None:
        captured = recorded.get(call)
        if captured is None:
            return Verdict(False, "it did not run")
        if captured.is_read is None:
            return Verdict(False, NOT_CACHED)
        reason = AS_DICTS if captured.pairs else AS_TUPLES if captured.named else captured.reason
        return Verdict(captured.is_read, reason if captured.is_read else captured.reason, captured.reason_line,
                       captured.stays, captured.of, captured.reason_file)
    return ask


def asking_rows(program: SourceProgram, recorded: dict[RddCall, CapturedCall],
                capture: RunCapture) -> Callable[[RddCall], FunctionOfRow | str]:
    """Return a function that gives the row function of a call on recorded blocks, or the reason why there is none."""
    def ask(call: RddCall) -> FunctionOfRow | str:
        if call not in recorded:
            return "it did not run"
        kept = [one for one in program.chain(call)[:-1] if one in recorded and recorded[one].sample is not None]
        kept += [one for one in recorded if recorded[one].sample is not None
                 and program.before(one) in program.chain(call)]
        records = capture.value(recorded[kept[-1]].sample) if kept else []
        return rows_of(program, call, recorded[call].ranks, records if isinstance(records, list) else [])
    return ask


def asking_reading(recorded: dict[RddCall, CapturedCall]) -> Callable[[RddCall], str | None]:
    """Return a function that says why a recorded map of lines is none that ``vispark.read_text`` reads, if it is none.
    """
    return lambda call: recorded[call].reads if call in recorded else "it did not run"


def promised_keys(program: SourceProgram, call: RddCall, captured: CapturedCall) -> str:
    """Return the name that a port promises a fold by key as ``numKeys=``: one above all keys that the functions before
    it use. Empty where there is none.
    """
    maps, before = list[ast.expr](), program.before(call)
    while before is not None and before.method in MAPS:
        maps += before.node.args
        before = program.before(before)
    used = {each.id for node in maps for each in ast.walk(node) if isinstance(each, ast.Name)}
    used |= {name for each in used if each in program.functions for name in _free_names(program.functions[each])}
    return next((name for name in captured.num_keys if name.removeprefix("len(").removesuffix(")") in used), "")


def _free_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function finds around it."""
    names = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
    bound = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    return {each.id for each in names if isinstance(each.ctx, ast.Load)} - bound - {
        each.id for each in names if not isinstance(each.ctx, ast.Load)}


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
