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
from gpu_worker.device.cuda.nvrtc import compile_cubin
from gpu_worker.device.host.device import HostDevice
from gpu_worker.protocol.errors import CompileError
from vispark.translate.codegen.scalar.interface import TableKernel, TracedCall
from vispark.translate.codegen.scalar.prelude import prelude_for
from vispark.translate.ir.types import C_TYPES

try:
    from cuda.bindings import driver
except ImportError:
    driver = None

#: Light compilations: the code is that of the kernel, only less of it is moved about, or next to nothing.
LIGHT = "sh -c 'exec g++ \"$@\" -O{}' g++"
#: As the product compiles, but for vectors: of complex numbers they round products once.
_CAREFUL = "3 -fno-tree-vectorize"
_INCLUDE = '#include "vispark/products.h"\n'
_ROW = re.compile(r"^(?:#if !?VISPARK_ALONE\n)?static __device__ (?!unsigned |__noinline__ __attribute__)", re.M)
_GLOBAL = re.compile(r'extern "C" __global__ void __launch_bounds__\([\d, ]+\)\s+(\w+)\(')


@dataclass(frozen=True, eq=False)
class UnitLaunch:
    """A kernel with everything that a launch of it takes."""

    kernel: TableKernel
    call: TracedCall
    fields: Mapping[str, np.ndarray]

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(next(iter(self.fields.values())))

    def outputs(self) -> list[np.ndarray]:
        """Return arrays for what the kernel writes."""
        return [np.zeros((self.count, *output.shape), output.dtype) for output in self.kernel.outputs]

    def ports(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays that the kernel reads and writes, in order."""
        named = {output.name: array for output, array in zip(self.kernel.outputs, outputs, strict=True)}
        return [np.ascontiguousarray(self.fields[one.name]) if one.kind == "input" else named[one.name]
                for one in self.kernel.parameters if one.kind in ("input", "output")]

    def given(self) -> list[np.ndarray]:
        """Return the other parameters, in order: an array, or a number as an array of one."""
        return [np.ascontiguousarray(value).reshape(-1) for value in self.kernel.values((self.call,))]

    def works(self) -> np.ndarray:
        """Entry, first row and rows of each thread block's work; the last ones in the middle of a tile."""
        tile = self.kernel.tile
        tiles = [(0, first, min(tile, self.count - first)) for first in range(0, self.count, tile)]
        return np.array(tiles, np.int64).reshape(-1, 3)


class Runner(Protocol):
    """A device that runs units."""

    def run(self, launches: Sequence[UnitLaunch], kept: bool = False) -> list[list[np.ndarray]]:
        """Return each launch's outputs; ``kept``: the compiled unit will be met again."""


def runner(device: str, careful: bool = True) -> Runner:
    """Return the runner for ``"host"`` or ``"cuda"``; one that is not ``careful`` compiles as fast as it can."""
    return _cuda(careful) if device == "cuda" else _host(_CAREFUL if careful else "0")


# -- the units' text --------------------------------------------------------------------------------------------------

def _bodies(launches: Sequence[UnitLaunch], head: str) -> str:
    """Return the kernels, each in a namespace of its own, after the helpers of all of them."""
    bodies = []
    for number, launch in enumerate(launches):
        text = launch.kernel.source
        text = text[_ROW.search(text).start():].replace("__device__ __forceinline__", "__device__ __noinline__")
        bodies.append(f"namespace unit_{number} {{\n{_GLOBAL.sub(head.format(number=number), text)}}}\n")
    text = "\n".join(bodies)
    return f"{_INCLUDE}{prelude_for(text)}\n{text}"


def host_text(launches: Sequence[UnitLaunch]) -> str:
    """Return the text of one kernel that calls the one asked for."""
    lines = [_bodies(launches, "static __device__ __noinline__ void kernel("),
             'extern "C" __global__ void unit(const long long which, const long long* works, void* const* ports,',
             "                                void** given)", "{", "    switch (which) {"]
    for number, launch in enumerate(launches):
        others = [one for one in launch.kernel.parameters if one.kind not in ("input", "output")]
        arguments = "".join(f", {'' if one.pointer else '*'}({C_TYPES[np.dtype(one.dtype).name]}*)given[{place}]"
                            for place, one in enumerate(others))
        lines.append(f"    case {number}: unit_{number}::kernel(works, ports{arguments}); break;")
    return "\n".join([*lines, "    }", "}", ""])


def cuda_text(launches: Sequence[UnitLaunch]) -> str:
    """Return the text of a module of kernels."""
    return _bodies(launches, 'extern "C" __global__ void kernel_{number}(')


# -- devices ----------------------------------------------------------------------------------------------------------

class _LightHost:
    """The ``host`` device, with a light compiler."""

    def __init__(self, level: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXX", LIGHT.format(level))
            self.cache = _Cache()
            self.device = HostDevice(cache=self.cache)

    def run(self, launches: Sequence[UnitLaunch], kept: bool = False) -> list[list[np.ndarray]]:
        self.cache.kept = kept
        compiled = self.device.compile(Source(host_text(launches), "unit.cu", ("-fmad=false",)), "unit")
        results = []
        for number, launch in enumerate(launches):
            results.append(launch.outputs())
            works, ports, others = launch.works(), launch.ports(results[-1]), launch.given()
            addresses = [np.array([array.ctypes.data for array in arrays], np.uintp) for arrays in (ports, others)]
            arguments = [np.int64(number), *(np.uint64(array.ctypes.data) for array in (works, *addresses))]
            if len(works):
                self.device.launch(compiled, (len(works),), (1,), arguments, stream=self.device.stream())
        return results


class _Cache(KernelCache):
    """Cache of kernels that keeps units only where they will be met again."""

    kept = False

    def put(self, payload: bytes, *parts: str | bytes) -> None:
        if self.kept or parts[0] != "host unit":
            super().put(payload, *parts)


class _Cuda:
    """The first GPU, through the driver.

    The way of rows through shared memory takes most of a compilation and is the same for all functions, so it is taken
    by some of each unit; the others go row after row, on one thread.
    """

    def __init__(self, careful: bool) -> None:
        self._do(driver.cuInit(0))
        device = self._do(driver.cuDeviceGet(0))
        self._do(driver.cuCtxSetCurrent(self._do(driver.cuDevicePrimaryCtxRetain(device))))
        self.arch = "sm_{}{}".format(*(self._do(driver.cuDeviceGetAttribute(getattr(
            driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), device))
            for part in ("MAJOR", "MINOR")))
        self.options = ("-fmad=false", *(() if careful or not _is_taken(_FAST, self.arch) else _FAST))

    def _do(self, outcome: tuple) -> Any:
        status, *values = outcome
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the driver failed: {status}")
        return values[0] if values else None

    def run(self, launches: Sequence[UnitLaunch], kept: bool = False) -> list[list[np.ndarray]]:
        return [*self._run(launches[:_FRAMED], True), *self._run(launches[_FRAMED:], False)]

    def _run(self, launches: Sequence[UnitLaunch], framed: bool) -> list[list[np.ndarray]]:
        if not launches:
            return []
        options = (*self.options, *(() if framed else ("-DVISPARK_ALONE=1",)))
        cubin = compile_cubin(Source(cuda_text(launches), "unit.cu", options), "unit_0::kernel_0", self.arch)
        module = self._do(driver.cuModuleLoadData(cubin.code))
        results = [launch.outputs() for launch in launches]
        memory = _Arena(self._do)
        placed = [[[memory.place(array) for array in arrays]
                   for arrays in ([launch.works()], launch.ports(outputs), launch.given())]
                  for launch, outputs in zip(launches, results, strict=True)]
        base = memory.begin()
        tables = [memory.place(np.array([base + place for place in ports], np.uint64)) for _, ports, _ in placed]
        memory.put()
        for number, (launch, (works, _, others), table) in enumerate(zip(launches, placed, tables, strict=True)):
            function = self._do(driver.cuModuleGetFunction(module, f"kernel_{number}".encode()))
            self._launch(function, launch, framed, base + works[0], base + table, [base + place for place in others])
        self._do(driver.cuCtxSynchronize())
        memory.get()
        self._do(driver.cuModuleUnload(module))
        for launch, outputs, (_, ports, _) in zip(launches, results, placed, strict=True):
            for array, place in zip(launch.ports(outputs), ports, strict=True):
                if any(array is output for output in outputs):
                    array.reshape(-1).view(np.uint8)[:] = memory.image[place:place + array.nbytes]
        return results

    def _launch(self, function: Any, launch: UnitLaunch, framed: bool, works: int, table: int,
                addresses: list[int]) -> None:
        """Pass the parameters by address, each where a buffer of its own holds it, and launch."""
        others = [one for one in launch.kernel.parameters if one.kind not in ("input", "output")]
        kept = [np.array([works], np.uint64), np.array([table], np.uint64)]
        kept += [np.array([address], np.uint64) if one.pointer else value
                 for one, address, value in zip(others, addresses, launch.given(), strict=True)]
        pointers = (ctypes.c_void_p * len(kept))(*(array.ctypes.data for array in kept))
        threads, shared = (launch.kernel.block, launch.kernel.shared) if framed else (1, 0)
        if shared > _PLAIN_SHARED:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do(driver.cuFuncSetAttribute(function, attribute, shared))
        if launch.count:
            self._do(driver.cuLaunchKernel(function, len(launch.works()), 1, 1, threads, 1, 1, shared, 0,
                                           ctypes.addressof(pointers), 0))


#: Kernels of a unit that take a GPU's way.
_FRAMED = 6
#: Halves the time of a compilation.
_FAST = ("--Ofast-compile=min",)
#: Dynamic shared memory that a kernel has without asking.
_PLAIN_SHARED = 48 << 10


def _is_taken(options: tuple[str, ...], arch: str) -> bool:
    """Return whether this NVRTC has options, as older ones cannot hurry."""
    try:
        compile_cubin(Source('extern "C" __global__ void nothing() {}', "nothing.cu", options), "nothing", arch)
    except CompileError:
        return False
    return True


class _Arena:
    """Arrays side by side in one piece of the GPU's memory, and their image here."""

    def __init__(self, do: Any) -> None:
        self.do, self.size_so_far, self.arrays, self.base = do, 256, list[tuple[int, np.ndarray]](), None

    def place(self, array: np.ndarray) -> int:
        """Give an array its place, and return that."""
        start = self.size_so_far
        self.arrays.append((start, array))
        self.size_so_far += -(-array.nbytes // 256) * 256
        return start

    def begin(self) -> int:
        """Allocate the memory, and return its address; the tables of ports that follow find room at its end."""
        self.size = self.size_so_far + 512 * len(self.arrays) + 4096
        self.base = self.do(driver.cuMemAlloc(self.size))
        return int(self.base)

    def put(self) -> None:
        """Fill the GPU's memory."""
        self.image = np.zeros(self.size, np.uint8)
        for place, array in self.arrays:
            self.image[place:place + array.nbytes] = array.reshape(-1).view(np.uint8)
        self.do(driver.cuMemcpyHtoD(self.base, self.image.ctypes.data, self.size))

    def get(self) -> None:
        """Copy what the GPU's memory holds now, and free it."""
        self.do(driver.cuMemcpyDtoH(self.image.ctypes.data, self.base, self.size))
        self.do(driver.cuMemFree(self.base))


@functools.cache
def _host(level: str) -> _LightHost:
    return _LightHost(level)


@functools.cache
def _cuda(careful: bool) -> _Cuda:
    return _Cuda(careful)
