"""Program of a recording: its source with the operations that ran, and what the recording says of each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of
from vispark.migrate.errors import SourceError
from vispark.migrate.rules.functions import Verdict
from vispark.migrate.rules.loop_rules import MAPS, NOT_CACHED
from vispark.migrate.rules.typed_verdicts import AS_DICTS, AS_TUPLES
from vispark.migrate.source.joined_modules import with_modules
from vispark.migrate.source.program import RddCall, SourceProgram
from vispark.migrate.source.row_functions import FunctionOfRow, rows_of


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
