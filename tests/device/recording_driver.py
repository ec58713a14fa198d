"""Stand-in for cuda-bindings' driver that records its calls: device memory is the host's, and kernels do not run.

It cannot show whether CUDA accepts the calls. It shows which there are, with which values, that each handle is given
back, and that the context of a call is current.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: Answers of an H200 to what is asked of a device, and of a kernel.
_OF_DEVICE = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "MEMORY_POOLS_SUPPORTED": 1, "MULTIPROCESSOR_COUNT": 132,
    "MAX_GRID_DIM_X": 2**31 - 1, "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535, "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64, "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472, "MAX_THREADS_PER_MULTIPROCESSOR": 2048}
_OF_FUNCTION = {"MAX_THREADS_PER_BLOCK": 1024, "NUM_REGS": 32}

#: What makes a handle, and what gives it back.
PAIRS = {"cuStreamCreate": "cuStreamDestroy", "cuEventCreate": "cuEventDestroy", "cuModuleLoadData": "cuModuleUnload",
         "cuMemHostAlloc": "cuMemFreeHost", "cuMemAllocAsync": "cuMemFreeAsync", "cuMemAlloc": "cuMemFree",
         "cuCtxPushCurrent": "cuCtxPopCurrent",
         "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease", "cuLibraryLoadData": "cuLibraryUnload"}

#: Calls that need no current context.
_ANYWHERE = {"cuInit", "cuDriverGetVersion", "cuCtxPushCurrent", "cuCtxSetCurrent", "cuStreamQuery", "cuGetErrorString"}


class RecordingDriver:
    """Module ``cuda.bindings.driver``, whose enumerations and types are the real one's.

    Parameters
    ----------
    real : module
        The real one, of which no function is called.
    layout : list of (int, int)
        Offset and size in bytes of the parameters that each kernel has.
    """

    def __init__(self, real: Any, layout: list[tuple[int, int]]):
        self._real = real
        self._layout = layout
        self._handles = itertools.count(0x1000, 16)
        self._primary = next(self._handles)
        self._memory: dict[int, Any] = {}
        self._current: list[Any] = []
        self.gpus = ["GPU-00000000-0000-0000-0000-000000000000"]
        self.instances: list[str] = []
        self._visible: list[str] | None = None
        self.failing: dict[str, tuple[Any, ...]] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.launches: list[tuple[tuple[int, ...], tuple[int, ...], int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name.startswith("cuuint"):
            return getattr(self._real, name)
        if not hasattr(self._real, name):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        self.calls.append((name, arguments))
        assert self._current or name in _ANYWHERE or name.startswith("cuDevice"), f"{name} without a current context"
        if name in self.failing:
            return self.failing[name]
        answer: Callable[..., tuple[Any, ...]] | None = getattr(self, f"_on_{name}", None)
        values = answer(*arguments) if answer else (next(self._handles),) if name in PAIRS else ()
        return self._real.CUresult.CUDA_SUCCESS, *values

    def count(self) -> Counter[str]:
        """Return the number of calls of each function."""
        return Counter(name for name, _ in self.calls)

    def unpaired(self) -> dict[str, int]:
        """Return the number of things that were made and not given back, by the function that made them."""
        counted = self.count()
        return {made: counted[made] - counted[ended] for made, ended in PAIRS.items()
                if counted[made] != counted[ended]}

    # -- answers ------------------------------------------------------------------------------------------------------

    def _on_cuGetErrorString(self, status: Any):
        return (b"words of the driver",)

    def _on_cuDriverGetVersion(self):
        return (13000,)

    def _on_cuInit(self, flags: int):
        """Do as CUDA does: the mask counts at the first call, and of MIG instances its first one is seen."""
        if self._visible is None:
            mask = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
            self._visible = [each for each in self.instances if each.startswith(mask)] if mask.startswith("MIG-") else \
                self.gpus
        return ()

    def _seen(self) -> list[str]:
        return self.gpus if self._visible is None else self._visible

    def _on_cuDeviceGetCount(self):
        return (len(self._seen()),)

    def _on_cuDeviceGet(self, ordinal: int):
        return (self._real.CUdevice(ordinal),)

    def _on_cuDeviceGetName(self, length: int, _: Any):
        return (b"stand-in".ljust(length, b"\0"),)

    def _on_cuDeviceTotalMem(self, _: Any):
        return (1 << 30,)

    def _on_cuDeviceGetAttribute(self, attribute: Any, _: Any):
        return (_OF_DEVICE.get(attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_"), 0),)

    def _on_cuFuncGetAttribute(self, attribute: Any, _: Any):
        return (_OF_FUNCTION.get(attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_"), 0),)

    def _on_cuDeviceGetDefaultMemPool(self, _: Any):
        return (next(self._handles),)

    def _on_cuDeviceGetUuid(self, device: Any):
        return (SimpleNamespace(bytes=uuid.UUID(self._seen()[int(device)].partition("-")[2]).bytes),)

    _on_cuDeviceGetUuid_v2 = _on_cuDeviceGetUuid

    def _on_cuDevicePrimaryCtxRetain(self, _: Any):
        return (self._primary,)

    def _on_cuCtxPushCurrent(self, context: Any):
        assert int(context) == self._primary
        self._current.append(context)
        return ()

    def _on_cuCtxSetCurrent(self, context: Any):
        assert int(context) == self._primary
        self._current[-1:] = [context]
        return ()

    def _on_cuCtxGetCurrent(self):
        return (self._current[-1],)

    def _on_cuCtxPopCurrent(self):
        return (self._current.pop(),)

    def _allocate(self, nbytes: int):
        memory = ctypes.create_string_buffer(nbytes)
        self._memory[ctypes.addressof(memory)] = memory
        return (ctypes.addressof(memory),)

    def _on_cuMemHostAlloc(self, nbytes: int, flags: int):
        return self._allocate(nbytes)

    def _on_cuMemAlloc(self, nbytes: int):
        return self._allocate(nbytes)

    def _on_cuMemAllocAsync(self, nbytes: int, stream: Any):
        return self._allocate(nbytes)

    def _on_cuMemFreeAsync(self, address: Any, stream: Any):
        del self._memory[int(address)]
        return ()

    def _copy(self, target: Any, source: Any, nbytes: int, stream: Any):
        ctypes.memmove(int(target), int(source), nbytes)
        return ()

    _on_cuMemcpyHtoDAsync = _on_cuMemcpyDtoHAsync = _on_cuMemcpyDtoDAsync = _copy

    def _on_cuMemGetInfo(self):
        return (1 << 29, 1 << 30)

    def _on_cuStreamWriteValue32(self, stream: Any, address: Any, value: int, flags: int):
        ctypes.c_uint32.from_address(int(address)).value = value
        return ()

    def _on_cuModuleGetFunction(self, module: Any, symbol: bytes):
        return (next(self._handles),)

    def _on_cuModuleGetGlobal(self, module: Any, symbol: bytes):
        return (*self._allocate(256), 256)

    def _on_cuLibraryGetKernel(self, library: Any, symbol: bytes):
        return (next(self._handles),)

    def _on_cuStreamBeginCapture(self, stream: Any, mode: Any):
        return ()

    def _on_cuEventElapsedTime(self, first: Any, last: Any):
        return (1.5,)

    def _on_cuLaunchKernel(self, function: Any, *arguments: Any):
        block = (ctypes.c_void_p * 5).from_address(arguments[9])
        assert (block[0], block[2], block[4]) == (1, 2, None), "no list of a buffer and its size"
        size = ctypes.c_size_t.from_address(block[3]).value
        self.launches.append((arguments[:3], arguments[3:6], arguments[6], ctypes.string_at(block[1], size)))
        return ()

    def cuKernelGetParamInfo(self, kernel: Any, number: int) -> tuple[Any, ...]:
        """Offset and size of a parameter; what ends the list is an error."""
        if number == len(self._layout):
            return self._real.CUresult.CUDA_ERROR_INVALID_VALUE, 0, 0
        return self._real.CUresult.CUDA_SUCCESS, *self._layout[number]
