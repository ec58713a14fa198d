"""Runs translated functions on the host device, and the functions themselves with NumPy scalars, record by record."""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from gpu_worker.device.base import Buffer, Device, Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.compiler import Compiler
from gpu_worker.device.host.device import HostDevice, HostKernel
from tests.golden.case import CaseData
from tests.property.differential.units import LIGHT
from vispark.translate import trace
from vispark.translate.codegen.scalar.interface import (
    ElementField,
    ElementSpec,
    ResultStructure,
    TableKernel,
    TracedCall,
)
from vispark.translate.fusion import fuse

#: Makes the host take the way through shared memory that a GPU takes, and what Hopper has for it.
AS_ON_GPU = ("-DVISPARK_ALONE=0",)
AS_ON_HOPPER = (*AS_ON_GPU, "-DVISPARK_ONE_PASS=1")


class _WaitingCompiler(Compiler):
    """Compiler that takes it that threads wait, as they do on a GPU's way, and compiles nothing in vain as if they did
    not.
    """

    def _compile(self, source: Source, name: str, options: Sequence[str], directory: str, waits: bool,
                 cache: KernelCache) -> dict[str, bool]:
        return super()._compile(source, name, options, directory, True, cache)


class _Host(HostDevice):
    """Compiles what takes a GPU's way lightly: its code is the kernel's, only less of it is moved about."""

    def __init__(self) -> None:
        super().__init__(cache=KernelCache())
        self._careful = self._compiler
        with pytest.MonkeyPatch.context() as patch:
            # Multiplications and additions are fused by the optimisations that the first level leaves out.
            patch.setenv("CXX", LIGHT.format("1 -fexpensive-optimizations"))
            self._light = _WaitingCompiler(**vars(Compiler.find()))

    def _load(self, source: Source, name: str) -> HostKernel:
        self._compiler = self._light if set(AS_ON_GPU) <= set(source.options) else self._careful
        return super()._load(source, name)


@functools.cache
def host() -> HostDevice:
    """Return the host device, with its kernels kept in the user's cache."""
    return _Host()


def record_of(data: CaseData) -> ElementSpec:
    """Return the description of one element of arrays."""
    fields = data if isinstance(data, Mapping) else {"": data}
    return ElementSpec(tuple(ElementField(name, array.dtype.str, array.shape[1:]) for name, array in fields.items()))


def translated(fn: Callable[..., Any], data: CaseData, *args: Any, staged: bool = False, exact: bool = True
               ) -> list[Any]:
    """Return the results of a function's kernel for each element, built as the function builds them.

    ``exact`` keeps multiplication and addition apart, as Python does; ``staged`` takes the way of a GPU.
    """
    calls = (TracedCall(trace(fn, args), args),)
    kernel = fuse(calls, record_of(data))
    options = (("-fmad=false",) if exact else ()) + (AS_ON_GPU if staged else ())
    blocks = (data,) if staged else parted(data)
    results = []
    for block, outputs in zip(blocks, launch(kernel, calls, blocks, options=options), strict=True):
        results += [build(kernel, kernel.structure, [outputs[output.name][i] for output in kernel.outputs])
                    for i in range(count_of(block))]
    return results


def count_of(block: CaseData) -> int:
    """Return the number of elements of a block."""
    return len(next(iter(block.values())) if isinstance(block, Mapping) else block)


def parted(data: CaseData) -> tuple[CaseData, ...]:
    """Data as blocks: one of two thirds, an empty one, and the rest."""
    count = count_of(data)
    cuts = [0, count * 2 // 3, count * 2 // 3, count]
    if isinstance(data, Mapping):
        return tuple({name: array[a:b] for name, array in data.items()} for a, b in itertools.pairwise(cuts))
    return tuple(data[a:b] for a, b in itertools.pairwise(cuts))


def launch(kernel: TableKernel, calls: Sequence[TracedCall], blocks: Sequence[CaseData], *,
           options: tuple[str, ...] = (), tiles: int = 1, on: Device | None = None) -> list[dict[str, np.ndarray]]:
    """Return the outputs of one launch over some blocks, for each block by name; of a fold instead the partials in one
    dict for each work, named by field and guard.

    ``tiles`` is the number of tiles that a work has; the device is the host where none is named.
    """
    device = on or host()
    stream = device.stream()
    buffers: list[Buffer] = []

    def put(array: np.ndarray) -> Buffer:
        array = np.ascontiguousarray(array)
        buffers.append(device.allocate(array.nbytes, stream=stream))
        if array.nbytes:
            device.copy_in(buffers[-1], array.reshape(-1).view(np.uint8), stream=stream)
        return buffers[-1]

    works = _works([count_of(block) for block in blocks], kernel.tile * tiles)
    ports, written = [], []
    for block in blocks:
        fields = block if isinstance(block, Mapping) else {"": block}
        outputs = {} if kernel.accumulated else {
            output.name: np.zeros((count_of(block), *output.shape), output.dtype) for output in kernel.outputs}
        placed = {}
        for parameter in kernel.parameters:
            if parameter.kind in ("input", "output"):
                placed[parameter] = put(fields[parameter.name] if parameter.kind == "input" else
                                        outputs[parameter.name])
        ports += [buffer.address for buffer in placed.values()]
        written.append((outputs, {one.name: buffer for one, buffer in placed.items() if one.kind == "output"}))
    partials = [np.zeros((len(works), one.width), _dtype(one.accumulator)) for one in kernel.accumulated]
    left = [put(partial) for partial in partials]
    values = [put(value) if value.shape else value for value in kernel.values(calls)]
    source = Source(kernel.source, f"{kernel.name}.cu", options)
    first, scratch = kernel.preparation, []
    if first is not None:
        scratch.append(put(np.zeros(first.nbytes, np.uint8)))
        device.launch(device.compile(source, first.name), (first.grid,), (first.block,), [*scratch, *values],
                      stream=stream)
    if len(works):
        grid = len(works) * (kernel.cluster if device.clusters else 1)
        device.launch(device.compile(source, kernel.name), (grid,), (kernel.block,), [
            put(works), put(np.array(ports, np.uint64)), *left, *scratch, *values], shared=kernel.shared, stream=stream)
    for outputs, placed in written:
        for name, output in outputs.items():
            if output.nbytes:
                device.copy_out(output.reshape(-1).view(np.uint8), placed[name], stream=stream)
    for partial, buffer in zip(partials, left, strict=True):
        if partial.nbytes:
            device.copy_out(partial.reshape(-1).view(np.uint8), buffer, stream=stream)
    device.synchronize(stream=stream)
    for buffer in buffers:
        buffer.close()
    if not kernel.accumulated:
        return [outputs for outputs, _ in written]
    named = {f"{one.field} {one.guard}".strip(): partial for one, partial in
             zip(kernel.accumulated, partials, strict=True)}
    return [{name: partial[i] for name, partial in named.items()} for i in range(len(works))]


def _works(counts: Sequence[int], rows: int) -> np.ndarray:
    works = [(entry, first, min(rows, count - first)) for entry, count in enumerate(counts)
             for first in range(0, count, rows)]
    return np.array(works, np.int64).reshape(-1, 3)


def _dtype(accumulator: str) -> np.dtype:
    if accumulator == "Twofold":
        return np.dtype([("sum", "f8"), ("lost", "f8")])
    return np.dtype({"double": "f8", "unsigned char": "u1", "signed char": "i1", "short": "i2", "unsigned short": "u2",
                     "int": "i4", "unsigned int": "u4", "long long": "i8", "unsigned long long": "u8"}[accumulator])


def build(kernel: TableKernel, structure: ResultStructure, values: Sequence[Any]) -> Any:
    """Return one result out of the outputs' values."""
    if structure.kind == "tuple":
        return tuple(build(kernel, item, values) for item in structure.items)
    if structure.kind == "dict":
        return {name: build(kernel, item, values) for name, item in zip(structure.names, structure.items, strict=True)}
    value = values[structure.output]
    return value.item() if kernel.outputs[structure.output].number else value


def plain(fn: Callable[..., Any], data: CaseData, *args: Any) -> list[Any]:
    """Return the results of the function itself, with NumPy scalars and rows."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if isinstance(data, Mapping):
            names = inspect.signature(fn).parameters
            if not set(names) & set(data):
                return [fn({name: array[i] for name, array in data.items()}, *args)
                        for i in range(len(next(iter(data.values()))))]
            named = dict(zip([name for name in names if name not in data], args, strict=False))
            return [fn(**named, **{name: array[i] for name, array in data.items() if name in names})
                    for i in range(len(next(iter(data.values()))))]
        return [fn(element, *args) for element in data]


def promoted(expected: object, actual: object) -> object:
    """Return the expected result in the types of the actual one."""
    if isinstance(expected, tuple):
        return tuple(map(promoted, expected, actual))
    value = np.asarray(expected).astype(np.asarray(actual).dtype)
    return value if isinstance(actual, np.ndarray) else (value[()] if isinstance(actual, np.generic) else value.item())


def difference(expected: Any, actual: Any, tolerance: float = 0.0) -> str:
    """Return the difference of two results; empty if there is none. ``tolerance`` is relative, in units of the dtype's
    rounding.
    """
    if isinstance(expected, tuple | dict):
        if type(expected) is not type(actual) or len(expected) != len(actual):
            return f"{expected!r} is not {actual!r}"
        pairs = zip(expected.items(), actual.items(), strict=True) if isinstance(expected, dict) else \
            zip(enumerate(expected), enumerate(actual), strict=True)
        return "".join(difference(a, b, tolerance) for (_, a), (_, b) in pairs)
    one, other = np.asarray(expected), np.asarray(actual)
    if one.shape != other.shape:
        return f"shape {one.shape} is not {other.shape}"
    if isinstance(expected, np.generic | np.ndarray) != isinstance(actual, np.generic | np.ndarray):
        return f"{type(expected).__name__} is not {type(actual).__name__}"
    if one.dtype != other.dtype:
        return f"dtype {one.dtype} is not {other.dtype}"
    if one.dtype.kind not in "fc":
        return "" if np.array_equal(one, other) else f"{expected!r} is not {actual!r}"
    limit = tolerance * np.finfo(one.dtype).eps
    tiny = tolerance * np.finfo(one.dtype).smallest_subnormal
    if np.allclose(one, other, rtol=limit, atol=tiny, equal_nan=True):
        return ""
    return f"{expected!r} is not {actual!r}"
