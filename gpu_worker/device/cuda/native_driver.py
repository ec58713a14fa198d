"""CUDA's driver by cuda-bindings alone, with the names of PyCUDA that the ``cuda`` device uses.

Everything here is a wheel; PyCUDA is built with a CUDA toolkit. Each class holds one handle and destroys it when nobody
holds the object any more, as PyCUDA's do; a call that fails is a :class:`DriverError`, which has CUDA's code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpu_worker.device.cuda.driver import DriverError, bindings, check

#: Errors of calls, as PyCUDA names them; of memory, too.
Error = DriverError


class MemoryError(DriverError):
    """Error of an exhausted device, which :class:`DriverError` tells by its code."""


class Names:
    """Members of an enumeration of CUDA's, by PyCUDA's shorter names.

    Parameters
    ----------
    enumeration : str
        Its name in cuda-bindings.
    prefix : str
        What its members' names begin with there.
    """

    def __init__(self, enumeration: str, prefix: str):
        self._enumeration = enumeration
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(bindings, self._enumeration), self._prefix + name)


device_attribute = Names("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_")
function_attribute = Names("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_")
event_flags = Names("CUevent_flags", "CU_EVENT_")



def init() -> None:
    """Initialise the driver; raise where it is not installed or finds no GPU."""
    try:
        check(bindings.cuInit(0))
    except RuntimeError as error:
        raise DriverError("CUDA_ERROR_NO_DEVICE", str(error)) from error


def get_driver_version() -> int:
    """Return the version of CUDA that the driver speaks, as 12040."""
    return int(check(bindings.cuDriverGetVersion()))


def mem_get_info() -> tuple[int, int]:
    """Return free and total bytes of the current device."""
    status, free, total = bindings.cuMemGetInfo()
    check((status,))
    return int(free), int(total)


def memcpy_dtod_async(target: int, source: int, nbytes: int, stream: DriverStream) -> None:
    """Enqueue a copy within a device."""
    check(bindings.cuMemcpyDtoDAsync(target, source, nbytes, stream.raw))


def memcpy_htod_async(target: int, source: bytes, stream: DriverStream) -> None:
    """Enqueue a copy of bytes, which the driver has taken when this returns, as they are not pinned."""
    check(bindings.cuMemcpyHtoDAsync(target, np.frombuffer(source, np.uint8).ctypes.data, len(source), stream.raw))


class DriverGpu:
    """GPU of this process, by its number."""

    def __init__(self, ordinal: int):
        self._handle = check(bindings.cuDeviceGet(ordinal))

    @staticmethod
    def count() -> int:
        return int(check(bindings.cuDeviceGetCount()))

    def name(self) -> str:
        return check(bindings.cuDeviceGetName(256, self._handle)).split(b"\0")[0].decode()

    def compute_capability(self) -> tuple[int, int]:
        return (self.get_attribute(device_attribute.COMPUTE_CAPABILITY_MAJOR),
                self.get_attribute(device_attribute.COMPUTE_CAPABILITY_MINOR))

    def get_attribute(self, attribute: Any) -> int:
        return int(check(bindings.cuDeviceGetAttribute(attribute, self._handle)))

    def total_memory(self) -> int:
        return int(check(bindings.cuDeviceTotalMem(self._handle)))

    def can_access_peer(self, other: DriverGpu) -> bool:
        return bool(check(bindings.cuDeviceCanAccessPeer(self._handle, other._handle)))

    def retain_primary_context(self) -> PrimaryContext:
        return PrimaryContext(self._handle)


#: The context that was retained last under each handle.
_CONTEXTS: dict[int, PrimaryContext] = {}


class PrimaryContext:
    """Primary context of a GPU, retained until :meth:`detach`."""

    def __init__(self, device: Any):
        self._device = device
        self._raw = check(bindings.cuDevicePrimaryCtxRetain(device))
        self.is_retained = True
        _CONTEXTS[self.handle] = self

    @property
    def handle(self) -> int:
        return int(self._raw)

    def push(self) -> None:
        check(bindings.cuCtxPushCurrent(self._raw))

    def make_current(self) -> None:
        """Make the context the calling thread's current one, and leave it so."""
        check(bindings.cuCtxSetCurrent(self._raw))

    def detach(self) -> None:
        self.is_retained = False
        check(bindings.cuDevicePrimaryCtxRelease(self._device))

    @staticmethod
    def pop() -> None:
        check(bindings.cuCtxPopCurrent())

    def destroy(self, destroy: Callable[[Any], object], raw: Any) -> None:
        """Destroy a handle of this context in any thread; one that was released has taken its handles with it."""
        if self.is_retained and bindings.cuCtxPushCurrent(self._raw)[0] == bindings.CUresult.CUDA_SUCCESS:
            destroy(raw)
            bindings.cuCtxPopCurrent()

    @staticmethod
    def synchronize() -> None:
        check(bindings.cuCtxSynchronize())


class DriverHandle:
    """Handle of the current context, destroyed with this object.

    Parameters
    ----------
    raw : object
        As cuda-bindings gives it.
    destroy : Callable
        Takes it. What it answers does not matter, as a context that is lost has no handles.
    """

    def __init__(self, raw: Any, destroy: Callable[[Any], object]):
        self.raw = raw
        self._destroy = destroy
        self._context = _CONTEXTS[int(check(bindings.cuCtxGetCurrent()))]

    @property
    def handle(self) -> int:
        return int(self.raw)

    def __del__(self) -> None:
        if hasattr(self, "_context"):
            self._context.destroy(self._destroy, self.raw)


class DriverStream(DriverHandle):
    """Stream of the current context, which only one thread at a time launches on.

    The arguments of a launch lie in memory of the stream until the driver has copied them. So a stream belongs to one
    plan from :meth:`StreamPool.take` to :meth:`StreamPool.give`, or to the plan whose turn the queue of repeated plans
    is at.
    """

    def __init__(self, flags: int):
        super().__init__(check(bindings.cuStreamCreate(flags)), bindings.cuStreamDestroy)
        #: Where the arguments of its launches lie, by their size in bytes.
        self.arguments = PackedArguments()

    def synchronize(self) -> None:
        check(bindings.cuStreamSynchronize(self.raw))

    def wait_for_event(self, event: DriverEvent) -> None:
        check(bindings.cuStreamWaitEvent(self.raw, event.raw, 0))


class DriverEvent(DriverHandle):
    """Event of the current context."""

    def __init__(self, flags: Any = 0):
        super().__init__(check(bindings.cuEventCreate(int(flags))), bindings.cuEventDestroy)

    def record(self, stream: DriverStream) -> None:
        check(bindings.cuEventRecord(self.raw, stream.raw))

    def time_since(self, earlier: DriverEvent) -> float:
        """Return the milliseconds from another event to this one."""
        return float(check(bindings.cuEventElapsedTime(earlier.raw, self.raw)))


class DriverModule(DriverHandle):
    """Module of compiled code in the current context."""

    def __init__(self, code: bytes):
        super().__init__(check(bindings.cuModuleLoadData(code)), bindings.cuModuleUnload)

    def get_function(self, symbol: str) -> DriverFunction:
        return DriverFunction(check(bindings.cuModuleGetFunction(self.raw, symbol.encode())))

    def get_global(self, symbol: str) -> tuple[int, int]:
        """Return address and size in bytes of a variable."""
        status, address, nbytes = bindings.cuModuleGetGlobal(self.raw, symbol.encode())
        check((status,))
        return int(address), int(nbytes)


class DriverFunction:
    """Kernel of a module, which has to be held for as long."""

    def __init__(self, raw: Any):
        self.raw = raw
        #: Launches of it by their extents, which the driver's call then need not be given one by one.
        self._launches: dict[tuple[Any, ...], Callable[..., tuple[Any, ...]]] = {}

    def get_attribute(self, attribute: Any) -> int:
        return int(check(bindings.cuFuncGetAttribute(attribute, self.raw)))

    def set_attribute(self, attribute: Any, value: int) -> None:
        check(bindings.cuFuncSetAttribute(self.raw, attribute, value))

    def _launch_kernel(self, grid: tuple[int, ...], block: tuple[int, ...], packed: bytes, shared: int,
                       stream: DriverStream) -> None:
        """Launch with packed arguments, which the driver has copied when this returns."""
        launch = self._launches.get((grid, block, shared)) or self._prepared(grid, block, shared)
        memory, place = stream.arguments[len(packed)]
        memory[:] = packed
        status, = launch(stream.raw, 0, place)
        if status:
            check((status,))

    def _prepared(self, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> Callable[..., tuple[Any, ...]]:
        """Return the launch of some extents, which is given stream and arguments."""
        if len(self._launches) >= _MOST_LAUNCHES:
            self._launches.clear()
        extents = (*grid, *_ONES[len(grid)], *block, *_ONES[len(block)])
        launch = partial(bindings.cuLaunchKernel, self.raw, *extents, shared)
        return self._launches.setdefault((grid, block, shared), launch)


#: Extents that a grid, or a block, of so many lacks.
_ONES = ((1, 1, 1), (1, 1), (1,), ())

#: The most extents that a kernel's launches are kept for.
_MOST_LAUNCHES = 64


class PackedValues(ctypes.Structure):
    """Arguments of a launch as one block of bytes: CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END, and the size."""

    _fields_ = (("pointer_key", ctypes.c_size_t), ("address", ctypes.c_size_t), ("size_key", ctypes.c_size_t),
                ("size", ctypes.c_size_t), ("end", ctypes.c_size_t), ("nbytes", ctypes.c_size_t))


class PackedArguments(dict[int, tuple[memoryview, int]]):
    """Memory for the arguments of a launch, and the address of what the driver is given for it, by their size.

    They are made once for each size, as making them takes longer than the launch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[PackedValues] = []

    def __missing__(self, nbytes: int) -> tuple[memoryview, int]:
        memory = (ctypes.c_char * nbytes)()
        values = PackedValues(1, ctypes.addressof(memory), 2, 0, 0, nbytes)
        place = ctypes.addressof(values)
        values.size = place + PackedValues.nbytes.offset
        self._kept.append(values)
        return self.setdefault(nbytes, (memoryview(memory).cast("B"), place if nbytes else 0))


class PageLocked(DriverHandle):
    """Host memory of the driver, as NumPy takes it."""

    def __init__(self, count: int, dtype: Any):
        kind = np.dtype(dtype)
        address = check(bindings.cuMemHostAlloc(max(count * kind.itemsize, 1), 0))
        super().__init__(int(address), bindings.cuMemFreeHost)
        self.__array_interface__ = {"version": 3, "shape": (count,), "typestr": kind.str, "data": (self.raw, False)}


def pagelocked_empty(count: int, dtype: Any) -> np.ndarray:
    """Return an array in page-locked memory, which lives as long as the array."""
    return np.asarray(PageLocked(count, dtype))


def pagelocked_zeros(count: int, dtype: Any) -> np.ndarray:
    """Return zeros in page-locked memory, which lives as long as the array."""
    zeros = pagelocked_empty(count, dtype)
    zeros[:] = 0
    return zeros


#: PyCUDA's names.
Device, Context, Stream, Event = DriverGpu, PrimaryContext, DriverStream, DriverEvent
module_from_buffer = DriverModule
