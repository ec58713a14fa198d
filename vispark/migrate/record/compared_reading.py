"""Comparison of what a recorded program makes of its first lines of text with what ``vispark.read_text`` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark import RDD

from vispark.api.sources.text_readers import read_text
from vispark.errors import VisparkError
from vispark.migrate.capture.recorded_program import programs_of, recorded_calls
from vispark.migrate.capture.run_capture import RunCapture
from vispark.migrate.rules.functions import OF_THE_USER, first_line
from vispark.migrate.source.text_sources import TextReader, readers_of


def compare_readings(capture: RunCapture, sources: Mapping[int, RDD[Any]],
                     functions: Mapping[int, Callable[[Any], Any]], count: int) -> None:
    """Compare the records of each map of lines for which ``vispark.read_text`` may stand, and note what comes out.

    Parameters
    ----------
    capture : RunCapture
        The program's recording; its calls get their ``reads``.
    sources : mapping
        RDDs of lines that maps were on, by the maps' numbers.
    functions : mapping
        Functions of maps, by their numbers.
    count : int
        Records that are compared, from the first on.
    """
    for program in programs_of(capture):
        recorded = recorded_calls(program, capture)
        for call, reader in readers_of(program).items():
            if not isinstance(reader, TextReader) or reader.source is None or any(
                    each not in recorded for each in reader.maps):
                continue
            numbers = [recorded[each].number for each in reader.maps]
            if numbers[0] in sources and all(each in functions for each in numbers):
                recorded[call].reads = why_not_read(reader, sources[numbers[0]], [functions[each] for each in numbers],
                                                    count)


def why_not_read(reader: TextReader, lines: RDD[Any], maps: Sequence[Callable[[Any], Any]], count: int) -> str:
    """Return the reason why ``vispark.read_text`` does not give what maps make of lines; empty where it does.

    Parameters
    ----------
    reader : TextReader
        By the program's source.
    lines : RDD
        What ``textFile`` gave.
    maps : sequence of callable
        Those that the reader stands for.
    count : int
        Records that are compared.
    """
    value, parts = reader.value, lines.getNumPartitions()
    columns = value.columns if value.kind != "number" else (value.columns or (0,))[0]
    try:
        records: RDD[Any] = read_text(lines.context, lines.name() or "", value.dtype, delimiter=value.delimiter or None,
                                      columns=columns, minPartitions=parts if reader.partitions else None)
        if value.kind == "tuple":
            records = records.map(tuple)
        if records.getNumPartitions() != parts:
            return f"its records are in {records.getNumPartitions()} partitions, those of the program in {parts}"
        for function in maps:
            lines = lines.map(function)
        return _difference(lines.take(count), records.take(count))
    except VisparkError as error:
        return first_line(error.message)
    except (Py4JError, *OF_THE_USER) as error:
        return f"{type(error).__name__}: {first_line(str(error))}"


def _difference(wanted: Sequence[Any], read: Sequence[Any]) -> str:
    if len(wanted) != len(read):
        return f"{len(read)} records in place of {len(wanted)}"
    for number, (one, other) in enumerate(zip(wanted, read, strict=True)):
        if isinstance(one, np.ndarray) and not (isinstance(other, np.ndarray) and one.dtype == other.dtype):
            return f"record {number} is of {one.dtype}"
        if not _is_alike(np.asarray(one), np.asarray(other)):
            return f"record {number} is {other} in place of {one}"
    return ""


def _is_alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two records are the same.

    Of float32 the next number is, too: Python rounds text to float64 and that again, ``vispark.read_text`` once.
    """
    if one.shape != other.shape:
        return False
    is_next = one.dtype == np.float32
    near = [np.nextafter(other, other.dtype.type(way)) == one for way in (-np.inf, np.inf)] if is_next else [False]
    return bool(np.all((one == other) | np.any(near, axis=0) | ((one != one) & (other != other))))
