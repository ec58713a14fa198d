"""Recorder of one run of a PySpark program: its operations of RDDs with their places, functions, times and results.

It wraps the methods of RDD, outermost calls only, runs the program as ``__main__``, keeps ``SparkContext.stop`` back,
and looks at what is cached before it stops for real.
"""

from __future__ import annotations

import functools
import math
import os
import runpy
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from vispark._utils.callers import _PACKAGES, call_site
from vispark.migrate.capture.clocks import driver_seconds
from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.capture.stored_results import ResultFile
from vispark.migrate.errors import MasterError, error_line
from vispark.migrate.predict.operation_count import operations_of
from vispark.migrate.record.compared_reading import compare_readings
from vispark.migrate.record.probed_chains import ProbedCall, probe_recording
from vispark.migrate.record.result_recorder import run as run_with_results
from vispark.migrate.record.whole_numbers import LEAVES, leave_64_bits
from vispark.migrate.rules.functions import FOLDS, aggregate_verdict, first_line, fold_verdict
from vispark.migrate.rules.loop_rules import MAPS, PASSING
from vispark.migrate.rules.record_forms import RecordForm, named_of, plain, verdict_by_form, why_not_kept
from vispark.migrate.rules.typed_verdicts import bytes_of, described, one_where, traffic_of, typed_verdict
from vispark.migrate.source.program import ACTIONS, TRANSFORMATIONS, SourceProgram
from vispark.migrate.source.row_functions import axes_around

#: Records of what is cached that are taken, results of an action that are kept, and runs whose times are.
SAMPLE, RESULTS, TIMES = 256, 100, 10_000
#: Records whose operations are counted.
COUNTED = 3

_WRAPPED = tuple(sorted(TRANSFORMATIONS | ACTIONS))


@dataclass
class _Live:
    """Objects of a call that only the running program has."""

    rdd: RDD[Any] | None = None
    source: RDD[Any] | None = None
    functions: tuple[Any, ...] = ()
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    local_names: dict[str, float] = field(default_factory=dict)


class Recorder:
    """Recorder of one program.

    Parameters
    ----------
    script : Path
    arguments : list of str
        The program's own.
    samples : bool
        Whether records and results are kept.
    saves : bool
        Whether ``save...`` actions run.
    master : str
        The only one on which the program may run; any where it is empty.
    results : ResultFile, optional
        Where the values of its statements go, too, which those of its port are compared with.
    probed : str
        ``spark.vispark.device`` on which actions are run on few records, for predictions; none where it is empty.
    probe_seconds : float
        After which no larger number of records is tried, or a twentieth of the program's seconds if that is more.
    """

    def __init__(self, script: Path, arguments: list[str], samples: bool = True, saves: bool = True, master: str = "",
                 results: ResultFile | None = None, probed: str = "", probe_seconds: float = math.inf):
        text = SourceProgram.read(script).source
        self.script, self.samples, self.saves, self.master = script, samples, saves, master
        self.results, self.probed, self.probe_seconds, self.ended = results, probed, probe_seconds, 0.0
        self.capture = RunCapture(str(script.resolve()), arguments, digest_of(text), folder=os.getcwd(),
                                  sources={str(script.resolve()): text})
        self._numbers: dict[tuple[str, int, int, str], int] = {}
        self._live: dict[int, _Live] = {}
        self._state = threading.local()
        self._began, self._left = time.perf_counter(), driver_seconds()

    def run(self) -> RunCapture:
        """Run the program, and return its recording.

        The program's own errors and exits go on to the caller after the recording is complete; the capture has them as
        ``failed``. What it did until then is in the capture.
        """
        before = sys.argv, list(sys.path)
        sys.argv = [str(self.script), *self.capture.arguments]
        sys.path.insert(0, str(self.script.resolve().parent))
        try:
            with self._wrapped(), self._stop_kept_back():
                try:
                    if self.results is not None:
                        run_with_results(self.script.resolve(), self.results, 0, None)
                    else:
                        runpy.run_path(str(self.script.resolve()), run_name="__main__")
                finally:
                    error, self.ended = sys.exc_info()[1], time.time()
                    if error is not None and not (isinstance(error, SystemExit) and not error.code):
                        self.capture.failed = error_line(str(error)) if isinstance(error, Py4JError) else \
                            f"{type(error).__name__}: {first_line(str(error))}"
                    self.capture.seconds = time.perf_counter() - self._began
                    self._state.depth = 1
                    self._look()
        finally:
            sys.argv, sys.path[:] = before
        return self.capture

    # -- wrapping -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        originals = {name: getattr(RDD, name) for name in _WRAPPED if hasattr(RDD, name)}
        for name, original in originals.items():
            setattr(RDD, name, self._around(name, original))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(RDD, name, original)

    def _around(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(rdd: RDD[Any], *arguments: Any, **named: Any) -> Any:
            if getattr(self._state, "depth", 0):
                return original(rdd, *arguments, **named)
            own = driver_seconds() - self._left
            frame = self._user_frame(sys._getframe(1))
            if frame is None:
                return original(rdd, *arguments, **named)
            self._check_master(rdd.context)
            self._state.depth = 1
            try:
                return self._recorded(name, original, rdd, arguments, named, frame, own)
            finally:
                self._state.depth, self._left = 0, driver_seconds()
        return wrapper

    def _check_master(self, context: SparkContext) -> None:
        """Check that the program runs where it is to, before it runs a job there.

        Raises
        ------
        MasterError
            If it does not.
        """
        if self.master and context.master != self.master:
            raise MasterError(f"the program runs on {context.master}, not on {self.master}: it names a master of its "
                              "own (setMaster, master(...), SparkContext(\"...\")), which goes before settings; leave "
                              "that out")

    def _recorded(self, name: str, original: Callable[..., Any], rdd: RDD[Any], arguments: tuple[Any, ...],
                  named: dict[str, Any], frame: types.FrameType, own: float) -> Any:
        """Run an operation, behind ``own`` seconds of the program's own code, and note what it did."""
        call = self._call_at(name, frame)
        call.on = getattr(rdd, "_vispark_call", None)
        call.times += 1
        if call.times > 1:
            call.driver += (own - call.driver) / (call.times - 1)
        if name.startswith("save"):
            warnings.warn(f"line {call.line}: the program writes, {name}" + ("" if self.saves else "; left out"),
                          stacklevel=4)
            if not self.saves:
                return None
        live = self._live.setdefault(call.number, _Live())
        live.arguments, live.named = arguments, named
        if name == "map" and call.on is None:
            live.source = rdd
        live.functions = tuple([each for each in (*arguments, *named.values()) if callable(each)])
        if name in ("reduceByKey", "foldByKey"):
            live.local_names = _countable(frame, live.local_names if call.times > 1 else None)
        start = time.perf_counter()
        with call_site(rdd.context, f"{name} at {call.file}:{call.line}"):
            result = original(rdd, *arguments, **named)
        if isinstance(result, RDD):
            result._vispark_call = call.number  # type: ignore[attr-defined]
            if name in ("cache", "persist"):
                # Caching gives the RDD itself, which keeps the place where it was made, too.
                call.on = call.on if call.on != call.number else None
                live.rdd = result
        elif len(call.starts) < TIMES:
            call.starts.append(start - self._began)
            call.seconds.append(time.perf_counter() - start)
            self._note_keys(call, result)
            if self.samples and len(call.results) < RESULTS:
                call.results.append(encoded(result, self.capture.arrays))
        return result

    def _user_frame(self, frame: types.FrameType | None) -> types.FrameType | None:
        """Return the innermost frame of the user's; the script is, wherever it lies."""
        while frame is not None and frame.f_code.co_filename != self.capture.script \
                and frame.f_code.co_filename.startswith((*_PACKAGES, "<frozen")):
            frame = frame.f_back
        return frame

    def _call_at(self, name: str, frame: types.FrameType) -> CapturedCall:
        file = frame.f_code.co_filename
        line, end_line, end_column = _position(frame)
        key = (file, end_line, end_column, name)
        if key not in self._numbers:
            self._numbers[key] = len(self.capture.calls)
            self.capture.calls.append(CapturedCall(len(self.capture.calls), file, line, end_line, end_column, name))
            if file not in self.capture.sources:
                path = Path(file)
                self.capture.sources[file] = path.read_text(encoding="utf-8") if path.is_file() else ""
        return self.capture.calls[self._numbers[key]]

    def _note_keys(self, call: CapturedCall, result: Any) -> None:
        """Note the keys that came out of a fold by key, and the names whose values are above all of them."""
        keyed = self._keyed_before(call)
        if keyed is None or not isinstance(result, list | dict):
            return
        if isinstance(result, list) and not all(isinstance(each, tuple) and each for each in result):
            return      # what comes behind the fold left the keys out
        keys = list(result) if isinstance(result, dict) else [each[0] for each in result]
        names = self._live[keyed.number].local_names
        if not keys or not all(isinstance(key, int) or hasattr(key, "__index__") for key in keys) or min(keys) < 0:
            keyed.keys, names = [], {}
        else:
            least, most = int(min(keys)), int(max(keys))
            before = keyed.keys or [least, most]
            keyed.keys = [min(before[0], least), max(before[1], most)]
        fitting = [name for name, value in names.items() if keyed.keys and value > keyed.keys[1]]
        first = keyed.num_keys == [] and len(call.starts) == 1
        keyed.num_keys = sorted(fitting, key=lambda name: (names[name], name)) if first else \
            [name for name in keyed.num_keys if name in fitting]

    def _keyed_before(self, call: CapturedCall) -> CapturedCall | None:
        return next((one for one in self.capture.before(call) if one.method in ("reduceByKey", "foldByKey")), None)

    @contextmanager
    def _stop_kept_back(self) -> Iterator[None]:
        stops = SparkContext.stop, SparkSession.stop
        SparkContext.stop = lambda self: None  # type: ignore[method-assign]
        SparkSession.stop = lambda self: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            SparkContext.stop, SparkSession.stop = stops  # type: ignore[method-assign]
            if (active := SparkContext._active_spark_context) is not None:
                active.stop()

    # -- after the program --------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take samples of what is cached, and ask the translator about each function with their types."""
        if (active := SparkContext._active_spark_context) is None:
            return
        self.capture.spark = active.version
        self.capture.sources |= {file: text for file, text in _modules_of(self.script.resolve().parent)
                                 if file not in self.capture.sources}
        samples: dict[int, list[Any]] = {}
        for number, live in self._live.items():
            if live.rdd is None:
                continue
            try:
                samples[number] = live.rdd.take(SAMPLE)
                count = live.rdd.count()
            except Py4JError as error:
                self.capture.calls[number].records = f"not known: {type(error).__name__}"
                continue
            call = self.capture.calls[number]
            held = plain(samples[number])
            call.records = described(held)
            call.count, call.record_bytes = count, bytes_of(held)
            if self.samples:
                call.sample = encoded(held, self.capture.arrays)
        for call in self.capture.calls:
            self._judge(call, samples)
        compare_readings(self.capture, {number: live.source for number, live in self._live.items()
                                        if live.source is not None},
                         {number: live.functions[0] for number, live in self._live.items() if live.functions}, SAMPLE)
        if self.probed:
            self._probe(active, samples)

    def _probe(self, context: SparkContext, samples: dict[int, list[Any]]) -> None:
        """Run each action that its port would have on the device, on records drawn from the samples."""
        calls = {call.number: ProbedCall(call, live.arguments, live.named) for call in self.capture.calls
                 if (live := self._live.get(call.number)) is not None}
        probe_recording(context, self.capture, calls, samples, self.probed,
                        max(self.probe_seconds, self.capture.seconds / 20))

    def _judge(self, call: CapturedCall, samples: dict[int, list[Any]]) -> None:
        functions = self._live[call.number].functions if call.number in self._live else ()
        if not functions or call.method not in MAPS | FOLDS | {"filter"}:
            return
        function = functions[0] if call.method != "filter" else one_where(functions[0])
        if call.method in ("aggregate", "treeAggregate"):
            verdict = aggregate_verdict(*functions[-2:]) if len(functions) > 1 else fold_verdict(function)
        elif call.method in FOLDS:
            verdict = fold_verdict(function)
        else:
            call.ranks = axes_around(function)
            chain, first, number = [(function, "value" if call.method == "mapValues" else "")], call, None
            for one in self.capture.before(call):
                number = one.number
                if number in samples or one.method not in PASSING:
                    break
                if one.method in MAPS:
                    first = one
                    chain.insert(0, (self._live[number].functions[0], "value" if one.method == "mapValues" else ""))
            if number is None or number not in samples:
                return
            records = samples[number]
            if chain[0][1] != "value":
                known = RecordForm(first.pairs, first.of) if first is not call and first.is_read else None
                verdict, form, typed = verdict_by_form(chain, records, known)
                if verdict.is_read and first is call:
                    call.pairs, call.of = form.pairs, form.of
                    call.named = named_of(records)
                if call.method == "filter":
                    call.stays = why_not_kept(plain(records))
            else:
                typed = chain, plain(records)
                verdict = typed_verdict(*typed)
            if verdict.is_read and leave_64_bits(chain, records):
                verdict = replace(verdict, is_read=False, reason=LEAVES)
            call.traffic = traffic_of(*typed) if verdict.is_read else []
            call.operations = operations_of(chain, samples[number][:COUNTED])
        call.is_read, call.reason = verdict.is_read, verdict.reason
        call.reason_line, call.reason_file = verdict.line, verdict.file


def _position(frame: types.FrameType) -> tuple[int, int, int]:
    """Return line, last line and last column of the call that a frame is at."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, end_line, _, end_column = positions
    return line or frame.f_lineno, end_line or frame.f_lineno, end_column or 0


def _modules_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the files of modules that were imported from a folder, with their texts."""
    for module in list(sys.modules.values()):
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix == ".py" and file.is_relative_to(folder) and "site-packages" not in file.parts \
                and not str(file).startswith(_PACKAGES):
            with suppress(OSError, UnicodeDecodeError):
                yield str(file), file.read_text(encoding="utf-8")


def _countable(frame: types.FrameType, before: dict[str, float] | None) -> dict[str, float]:
    """Return the whole numbers and lengths that names of a frame stand for, as expressions with their values.

    Of those that were there before only, with the least value that each had.
    """
    counts: dict[str, float] = {}
    for name, value in {**frame.f_globals, **frame.f_locals}.items():
        if name.startswith("_"):
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            counts[name] = value
        elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
            counts[f"len({name})"] = len(value)
    if before is None:
        return counts
    return {name: min(value, before[name]) for name, value in counts.items() if name in before}
