"""Many kernels in one compilation, launched one after the other: the one place that knows how a kernel is called.

On the host a unit is one kernel that calls the one asked for; on a GPU it is a module of kernels. Both keep products
and sums apart (``-fmad=false``), as Python does.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host import HostDevice
from gpu_worker.device.nvrtc import compile_cubin
from vispark.translate import Function, Kernel
from vispark.translate.prelude import prelude_for
from vispark.translate.types import C_TYPES

try:
    from cuda.bindings import driver
except ImportError:
    driver = None

#: A light compilation: the code is that of the kernel, only less of it is moved about.
LIGHT = "sh -c 'exec g++ \"$@\" -O1' g++"
_HEAD = re.compile(r'extern "C" __global__ void __launch_bounds__\((\d+)\)\s+(\w+)\(')
_STAGED = "#if !defined(STAGED) && !defined(__CUDA_ON_HOST__)\n#define STAGED 1\n#endif\n\n"


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel with everything that a launch of it takes."""

    kernel: Kernel
    function: Function
    fields: Mapping[str, np.ndarray]
    args: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(next(iter(self.fields.values())))

    def outputs(self) -> list[np.ndarray]:
        """Arrays for what it writes."""
        return [np.zeros((self.count, *output.shape), output.dtype) for output in self.kernel.outputs]

    def arrays(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What each parameter points to or is, in order, without the count at the end."""
        values, written = iter(self.kernel.values(self.function, self.args)), iter(outputs)
        found = []
        for parameter in self.kernel.parameters[:-1]:
            value = self.fields[parameter.name] if parameter.kind == "input" else (
                next(written) if parameter.kind == "output" else next(values))
            found.append(np.ascontiguousarray(value).reshape(-1))
        return found


class Runner(Protocol):
    """A device that runs units."""

    def run(self, calls: Sequence[Call], kept: bool = False) -> list[list[np.ndarray]]:
        """Each call's outputs; ``kept``: the compiled unit will be met again."""


def runner(device: str) -> Runner:
    """The one for ``"host"`` or ``"cuda"``."""
    return {"host": _host, "cuda": _cuda}[device]()


# -- the units' text --------------------------------------------------------------------------------------------------

def _bodies(calls: Sequence[Call], head: str) -> tuple[str, list[int]]:
    """The kernels under names of their own, after the helpers of all of them, and the threads of their blocks."""
    bodies, blocks, staged = [], [], False
    for number, call in enumerate(calls):
        source = call.kernel.source
        staged = staged or "#ifdef STAGED" in source
        start = _HEAD.search(source)
        blocks.append(int(start[1]))
        bodies.append(head.format(threads=start[1], name=f"unit_{number}") + source[start.end():])
    text = "\n".join(bodies)
    return f"{_STAGED if staged else ''}{prelude_for(text)}\n{text}", blocks


def _cast(place: int, dtype: str, pointer: bool) -> str:
    kind = C_TYPES[np.dtype(dtype).name]
    return f"({kind}*)ports[{place}]" if pointer else f"*({kind}*)ports[{place}]"


def host_text(calls: Sequence[Call]) -> tuple[str, list[int]]:
    """One kernel that calls the one asked for."""
    text, blocks = _bodies(calls, "static __device__ __attribute__((noinline)) void {name}(")
    lines = [text, "", 'extern "C" __global__ void unit(const long long which, const long long n, void** ports)', "{",
             "    switch (which) {"]
    for number, call in enumerate(calls):
        given = ", ".join(_cast(place, parameter.dtype, parameter.pointer)
                          for place, parameter in enumerate(call.kernel.parameters[:-1]))
        lines.append(f"    case {number}: unit_{number}({given}, n); break;")
    return "\n".join([*lines, "    }", "}", ""]), blocks


def cuda_text(calls: Sequence[Call]) -> tuple[str, list[int]]:
    """A module of kernels."""
    return _bodies(calls, 'extern "C" __global__ void __launch_bounds__({threads}) {name}(')


# -- devices ----------------------------------------------------------------------------------------------------------

class _Host:
    """The ``host`` device, with a light compiler."""

    def __init__(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXX", LIGHT)
            self.cache = _Cache()
            self.device = HostDevice(cache=self.cache)

    def run(self, calls: Sequence[Call], kept: bool = False) -> list[list[np.ndarray]]:
        text, blocks = host_text(calls)
        self.cache.kept = kept
        compiled = self.device.compile(Source(text, "unit.cu", ("-fmad=false",)), "unit")
        found = []
        for number, (call, threads) in enumerate(zip(calls, blocks, strict=True)):
            outputs = call.outputs()
            arrays = call.arrays(outputs)
            ports = np.array([array.ctypes.data for array in arrays], np.uintp)
            arguments = [np.int64(number), np.int64(call.count), np.uint64(ports.ctypes.data)]
            self.device.launch(compiled, (max(1, -(-call.count // threads)),), (threads,), arguments,
                               stream=self.device.stream())
            found.append(outputs)
        return found


class _Cache(KernelCache):
    """Keeps units only where they will be met again."""

    kept = False

    def put(self, payload: bytes, *parts: str | bytes) -> None:
        if self.kept or parts[0] != "host unit":
            super().put(payload, *parts)


class _Cuda:
    """The first GPU, through the driver."""

    def __init__(self) -> None:
        self._do(driver.cuInit(0))
        device = self._do(driver.cuDeviceGet(0))
        self._do(driver.cuCtxSetCurrent(self._do(driver.cuDevicePrimaryCtxRetain(device))))
        self.arch = "sm_{}{}".format(*(self._do(driver.cuDeviceGetAttribute(getattr(
            driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), device))
            for part in ("MAJOR", "MINOR")))

    def _do(self, outcome: tuple) -> Any:
        status, *values = outcome
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the driver failed: {status}")
        return values[0] if values else None

    def run(self, calls: Sequence[Call], kept: bool = False) -> list[list[np.ndarray]]:
        text, blocks = cuda_text(calls)
        cubin = compile_cubin(Source(text, "unit.cu", ("-fmad=false",)), "unit_0", self.arch)
        module = self._do(driver.cuModuleLoadData(cubin.code))
        found, arrays = [], []
        for call in calls:
            found.append(call.outputs())
            arrays.append(call.arrays(found[-1]))
        starts, room = [], 256
        for each in arrays:
            starts.append([])
            for array in each:
                starts[-1].append(room)
                room += -(-array.nbytes // 256) * 256
        image = np.zeros(room, np.uint8)
        for places, each in zip(starts, arrays, strict=True):
            for place, array in zip(places, each, strict=True):
                image[place:place + array.nbytes] = array.view(np.uint8)
        base = self._do(driver.cuMemAlloc(room))
        self._do(driver.cuMemcpyHtoD(base, image.ctypes.data, room))
        for number, (call, threads) in enumerate(zip(calls, blocks, strict=True)):
            self._launch(self._do(driver.cuModuleGetFunction(module, f"unit_{number}".encode())), call, threads,
                         [int(base) + place for place in starts[number]], arrays[number])
        self._do(driver.cuCtxSynchronize())
        self._do(driver.cuMemcpyDtoH(image.ctypes.data, base, room))
        self._do(driver.cuMemFree(base))
        self._do(driver.cuModuleUnload(module))
        for call, places, each in zip(calls, starts, arrays, strict=True):
            for parameter, place, array in zip(call.kernel.parameters, places, each, strict=False):
                if parameter.kind == "output":
                    array.view(np.uint8)[:] = image[place:place + array.nbytes]
        return found

    def _launch(self, function: Any, call: Call, threads: int, addresses: list[int], arrays: list[np.ndarray]) -> None:
        """The parameters by address, each where a buffer of its own holds it."""
        kept = [np.array([address], np.uintp) if parameter.pointer else array
                for parameter, address, array in zip(call.kernel.parameters, addresses, arrays, strict=False)]
        kept.append(np.array([call.count], np.int64))
        pointers = (ctypes.c_void_p * len(kept))(*(array.ctypes.data for array in kept))
        self._do(driver.cuLaunchKernel(function, max(1, -(-call.count // threads)), 1, 1, threads, 1, 1, 0, 0,
                                            ctypes.addressof(pointers), 0))


@functools.cache
def _host() -> _Host:
    return _Host()


@functools.cache
def _cuda() -> _Cuda:
    return _Cuda()
