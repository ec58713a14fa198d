"""Kernels that the generator makes of row functions and of a fold by key that a user might write; as :mod:`generated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.generated import COPY, MADE, beside_a_copy
from benchmarks.kernel_launches import KERNELS, THREADS, Buffers, LaunchCall
from benchmarks.measure import Case
from benchmarks.results import Group
from gpu_worker.device.base import Buffer, Device, Source
from gpu_worker.execution.launches.tiling import tile_rows
from gpu_worker.protocol.messages import FieldFold
from vispark.translate import ElementField, ElementSpec, Folding, TableKernel, TracedCall, fuse, trace

SINGLE = "a row a thread"
COLUMNS, KEYS = 64, 1000

#: Rows that are compared with NumPy's, and what they repeat, in bytes: a whole number of rows.
_CHECKED, _NOISE = 4096, 16 << 20


def best(row):
    return np.argmax(row)


def softmax(row):
    powers = np.exp(row - np.max(row))
    return powers / np.sum(powers)


def length(row):
    return np.sqrt(np.sum(row * row))


def by_key(k, v):
    return k, v


@dataclass(frozen=True)
class RowCase:
    """A function of a row, what NumPy makes of all, and how far from that, in float64, a number may be relatively."""

    name: str
    function: Callable
    numpy: Callable[[np.ndarray], np.ndarray]
    tolerance: float


FUNCTIONS = [RowCase("argmax of a row", best, lambda rows: rows.argmax(1), 0.0),
             RowCase("softmax of a row", softmax, lambda rows: np.exp(rows) / np.exp(rows).sum(1, keepdims=True),
                     1e-5),
             RowCase("norm of a row", length, lambda rows: np.sqrt((rows * rows).sum(1)), 2e-6)]


def of_rows(device: Device, rows: int, samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure each function of a row."""
    noise = np.random.default_rng(0).random((_NOISE // 4 // COLUMNS, COLUMNS), np.float32)
    for case in FUNCTIONS:
        calls = (TracedCall(trace(case.function)),)
        kernel = fuse(calls, ElementSpec((ElementField("", "<f4", (COLUMNS,)),)))
        output, = kernel.outputs
        width = int(np.prod(output.shape, dtype=int))
        group = _group(f"kernels, {case.name}, {rows:,} x {COLUMNS}", rows, samples, device)
        with Buffers(device) as memory:
            source = memory.put_again(noise, rows * COLUMNS * 4)
            size = rows * width * np.dtype(output.dtype).itemsize
            outputs = {way: memory.allocate(size) for way in (MADE, SINGLE)}
            generated, _ = _launched(memory, kernel, rows, [source, outputs[MADE]])
            single = _by_hand(memory, case.function.__name__, rows, [source, outputs[SINGLE]])
            nbytes = rows * COLUMNS * 4 + size
            group.series = beside_a_copy(device, [Case(MADE, generated, nbytes, (COPY, SINGLE)),
                                                  Case(SINGLE, single, nbytes, (COPY,))], samples, done)
            for way, buffer in outputs.items():
                group.checks[way] = _checked(memory, case, buffer, output.dtype, rows, noise)
        yield group


def _checked(memory: Buffers, case: RowCase, output: Buffer, dtype: str, rows: int, noise: np.ndarray) -> dict:
    """Compare the first rows and the last with NumPy's: return the relative difference."""
    if memory.device.kind == "null":
        return {"recorded": True}
    off, count = 0.0, min(rows, _CHECKED)
    for first in (0, rows - count):
        wanted = case.numpy(noise[np.arange(first, first + count) % len(noise)].astype(np.float64))
        width = wanted.size // count
        actual = memory.get(output, dtype, count * width, first * width).astype(np.float64)
        wanted = wanted.reshape(-1)
        off = max(off, float((np.abs(actual - wanted) / np.maximum(np.abs(wanted), 1e-30)).max()))
    return {"off": off, "allowed": case.tolerance}


def of_keys(device: Device, records: int, samples: int, done: Callable[[str], None]) -> Iterator[Group]:
    """Measure a fold by key: what each work leaves of it, not joined yet; against atomic additions."""
    random = np.random.default_rng(1)
    keys, values = random.integers(0, KEYS, 1 << 20, np.int32), random.random(1 << 20, np.float32)
    calls = (TracedCall(trace(by_key)),)
    kernel = fuse(calls, ElementSpec((ElementField("k", "<i4"), ElementField("v", "<f4"))),
                  folding=Folding((FieldFold("1", "add"),), "0", KEYS))
    group = _group(f"kernels, sums by {KEYS} keys, {records:,} records", records, samples, device)
    with Buffers(device) as memory:
        ports = [memory.put_again(each, records * 4) for each in (keys, values)]
        generated, partials = _launched(memory, kernel, records, ports)
        single = _by_hand(memory, "by_key", records, [*ports, memory.put(np.zeros(KEYS))])
        group.series = beside_a_copy(device, [Case(MADE, generated, records * 8, (COPY, SINGLE)),
                                              Case(SINGLE, single, records * 8, (COPY,))], samples, done)
        if device.kind == "null":
            group.checks[MADE] = {"recorded": True}
        else:
            at = np.arange(records // len(keys) + 1) * len(keys)
            wanted = sum(np.bincount(keys[:max(0, records - first)], values[:max(0, records - first)], KEYS)
                         for first in at)
            off = float(np.abs(_joined(memory, kernel, partials, "1") / wanted - 1).max())
            group.checks[MADE] = {"off": off, "allowed": 1e-9}
    yield group


def _joined(memory: Buffers, kernel: TableKernel, partials: Sequence[tuple[Buffer, int]], field: str) -> np.ndarray:
    """Return the total of the sums of a field that all works left."""
    for accumulated, (buffer, works) in zip(kernel.accumulated, partials, strict=True):
        if accumulated.field == field and not accumulated.guard:
            assert accumulated.accumulator == "double", accumulated.accumulator
            return memory.get(buffer, "f8", works * KEYS).reshape(works, KEYS).sum(0)
    raise AssertionError(f"nothing is left of {field}")


def _launched(memory: Buffers, kernel: TableKernel, rows: int, ports: Sequence[Buffer]
              ) -> tuple[LaunchCall, list[tuple[Buffer, int]]]:
    """Return a launch over one block, dealt to works as a worker deals it; what they leave of a fold, and their number.
    """
    device = memory.device
    most = max(1, round(kernel.waves * device.multiprocessors)) if kernel.waves > 0 else 0
    works = tile_rows([rows], kernel.tile, most)
    assert kernel.preparation is None
    table = memory.put(works), memory.put(np.array([port.address for port in ports], np.uint64))
    partials = [(memory.put(np.zeros(len(works) * each.width * _BYTES[each.accumulator], np.uint8)), len(works))
                for each in kernel.accumulated]
    run = memory.launched(Source(kernel.source, f"{kernel.name}.cu"), kernel.name, (len(works),), (kernel.block,),
                          [*table, *(buffer for buffer, _ in partials)], kernel.shared)
    return run, partials


_BYTES = {"double": 8, "long long": 8, "int": 4, "unsigned long long": 8, "unsigned int": 4, "Twofold": 16}


def _by_hand(memory: Buffers, name: str, rows: int, buffers: Sequence[Buffer]) -> LaunchCall:
    source = Source(KERNELS.read_text(), KERNELS.name, (f"-DCOLUMNS={COLUMNS}",))
    return memory.launched(source, name, (-(-rows // THREADS),), (THREADS,), [*buffers, np.int64(rows)])


def _group(name: str, rows: int, samples: int, device: Device) -> Group:
    return Group(name, {"rows": rows, "dtype": "float32", "samples": samples, "device": device.kind})
