"""Runs translated functions on the host device, and the functions themselves with NumPy scalars, record by record."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host import HostDevice
from vispark.translate import Field, Function, Kernel, Record, Structure, specialise, trace

#: Makes the host take the way through shared memory that a GPU takes.
STAGED = ("-DSTAGED", "-D__barrier_sync(id)=__syncthreads()")
Data = np.ndarray | Mapping[str, np.ndarray]


@functools.cache
def host() -> HostDevice:
    """The host device, with its kernels kept in the user's cache."""
    return HostDevice(cache=KernelCache())


def record_of(data: Data) -> Record:
    """What one element of arrays is."""
    fields = data if isinstance(data, Mapping) else {"": data}
    return Record(tuple(Field(name, array.dtype.str, array.shape[1:]) for name, array in fields.items()))


def translated(fn: Callable[..., Any], data: Data, *args: Any, staged: bool = False, exact: bool = True) -> list[Any]:
    """What the kernel of a function gives for each element, built as the function builds it.

    ``exact`` keeps multiplication and addition apart, as Python does.
    """
    function = trace(fn, args)
    kernel = specialise(function, record_of(data), args)
    options = (("-fmad=false",) if exact else ()) + (STAGED if staged else ())
    outputs = launch(kernel, function, data, args, options)
    count = len(next(iter(data.values())) if isinstance(data, Mapping) else data)
    return [build(kernel, kernel.structure, [output[i] for output in outputs]) for i in range(count)]


def launch(kernel: Kernel, function: Function, data: Data, args: Sequence[Any],
           options: tuple[str, ...] = ()) -> list[np.ndarray]:
    """The outputs of one launch."""
    device = host()
    stream = device.stream()
    fields = data if isinstance(data, Mapping) else {"": data}
    count = len(next(iter(fields.values())))
    outputs = [np.empty((count, *output.shape), output.dtype) for output in kernel.outputs]
    values, written, buffers, given = iter(kernel.values(function, args)), iter(outputs), [], []
    for parameter in kernel.parameters:
        if parameter.kind == "count":
            given.append(np.int64(count))
            continue
        array = fields[parameter.name] if parameter.kind == "input" else (
            next(written) if parameter.kind == "output" else next(values))
        if not parameter.pointer:
            given.append(array)
            continue
        array = np.ascontiguousarray(array)
        buffer = device.allocate(array.nbytes, stream=stream)
        if parameter.kind != "output" and array.nbytes:
            device.copy_in(buffer, array.reshape(-1).view(np.uint8), stream=stream)
        buffers.append((buffer, parameter.kind))
        given.append(buffer)
    compiled = device.compile(Source(kernel.source, f"{kernel.name}.cu", options), kernel.name)
    device.launch(compiled, (kernel.grid(count),), (kernel.block,), given, stream=stream)
    device.synchronize(stream=stream)
    for output, buffer in zip(outputs, [buffer for buffer, kind in buffers if kind == "output"], strict=True):
        if output.nbytes:
            device.copy_out(output.reshape(-1).view(np.uint8), buffer, stream=stream)
    for buffer, _ in buffers:
        buffer.close()
    return outputs


def build(kernel: Kernel, structure: Structure, values: Sequence[Any]) -> Any:
    """One result out of the outputs' values."""
    if structure.kind == "tuple":
        return tuple(build(kernel, item, values) for item in structure.items)
    if structure.kind == "dict":
        return {name: build(kernel, item, values) for name, item in zip(structure.names, structure.items, strict=True)}
    value = values[structure.output]
    return value.item() if kernel.outputs[structure.output].number else value


def plain(fn: Callable[..., Any], data: Data, *args: Any) -> list[Any]:
    """What the function itself gives, with NumPy scalars and rows."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if isinstance(data, Mapping):
            names = inspect.signature(fn).parameters
            given = dict(zip([name for name in names if name not in data], args, strict=False))
            return [fn(**given, **{name: array[i] for name, array in data.items() if name in names})
                    for i in range(len(next(iter(data.values()))))]
        return [fn(element, *args) for element in data]


def difference(expected: Any, found: Any, tolerance: float = 0.0) -> str:
    """How two results differ; empty if they do not. ``tolerance`` is relative, in units of the dtype's rounding."""
    if isinstance(expected, tuple | dict):
        if type(expected) is not type(found) or len(expected) != len(found):
            return f"{expected!r} is not {found!r}"
        pairs = zip(expected.items(), found.items(), strict=True) if isinstance(expected, dict) else \
            zip(enumerate(expected), enumerate(found), strict=True)
        return "".join(difference(a, b, tolerance) for (_, a), (_, b) in pairs)
    one, other = np.asarray(expected), np.asarray(found)
    if one.shape != other.shape:
        return f"shape {one.shape} is not {other.shape}"
    if isinstance(expected, np.generic | np.ndarray) != isinstance(found, np.generic | np.ndarray):
        return f"{type(expected).__name__} is not {type(found).__name__}"
    if one.dtype != other.dtype:
        return f"dtype {one.dtype} is not {other.dtype}"
    if one.dtype.kind not in "fc":
        return "" if np.array_equal(one, other) else f"{expected!r} is not {found!r}"
    limit = tolerance * np.finfo(one.dtype).eps
    tiny = tolerance * np.finfo(one.dtype).smallest_subnormal
    if np.allclose(one, other, rtol=limit, atol=tiny, equal_nan=True):
        return ""
    return f"{expected!r} is not {found!r}"
