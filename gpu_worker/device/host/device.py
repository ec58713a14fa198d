"""The ``host`` device: CUDA C++ compiled for this machine's CPU, and its memory.

The headers under ``cuda_on_host/`` make the host compiler take a user's source as it is; their runtime runs a grid's
blocks on all cores. Work is done when the call returns, so all streams are in order and none has anything to wait for.
A kernel that ends with a signal takes the process with it, as a failed context does on a GPU, after it has left its
mark in the crash record.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gpu_worker.device.base import (
    Buffer,
    CompiledKernel,
    Device,
    LaunchValue,
    Memory,
    PackedLaunch,
    SharedMemory,
    Source,
    Stream,
)
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host import shared_memory
from gpu_worker.device.host.compiler import Compiler
from gpu_worker.device.host.memory import HostMemory
from gpu_worker.device.launch_limits import (
    SHARED_BYTES,
    Limits,
    Parameters,
    check_fits,
    check_launch,
    numbered,
)
from gpu_worker.device.loaded_kernels import LoadedKernels
from gpu_worker.protocol.errors import CompileError, DeviceUnavailable, KernelFault, LaunchError, OutOfMemory
from gpu_worker.protocol.system import system_call
from gpu_worker.system import caller, crash_record
from gpu_worker.system.fault_report import POINTER

LIMITS = Limits((2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, SHARED_BYTES)

_THREE = 3
#: The status of a launch for whose waiting threads there were no stacks; see runtime.cpp.
_NO_STACKS = 2
#: The status of one that ended before its last block, as nobody waits for it.
_UNWANTED = 3

#: Bytes around each buffer in which nothing lies, where accesses are checked.
_GAP = 1 << 20


class _Symbol(ctypes.Structure):
    _fields_: ClassVar = [("address", ctypes.c_void_p), ("nbytes", ctypes.c_ulonglong)]


class _AddressRange(ctypes.Structure):
    _fields_: ClassVar = [("start", ctypes.c_ulonglong), ("end", ctypes.c_ulonglong)]


class _Bounds(ctypes.Structure):
    """ctypes mirror of ``Bounds`` in interface.h: the address ranges of a launch's buffers, and the first access
    outside of them.
    """

    _fields_: ClassVar = [("count", ctypes.c_ulonglong), ("ranges", ctypes.POINTER(_AddressRange)),
                          *[(name, ctypes.c_ulonglong) for name in ("gap", "buffer", "address", "size")],
                          ("taken", ctypes.c_uint), ("write", ctypes.c_uint), ("place", ctypes.c_uint * 6)]

    @classmethod
    def of(cls, call: PackedLaunch) -> _Bounds:
        buffers = [argument for argument in call.arguments if isinstance(argument, Buffer)]
        ranges = (_AddressRange * len(buffers))(*[_AddressRange(each.address, each.address + each.nbytes)
                                                  for each in buffers])
        return cls(len(buffers), ranges, _GAP)

    def words(self, call: PackedLaunch) -> str:
        """Return the text of the access that missed its buffer; "" if there was none."""
        if not self.taken:
            return ""
        places = [place for place, argument in enumerate(call.arguments, 1) if isinstance(argument, Buffer)]
        missed = self.ranges[self.buffer]
        nbytes = missed.end - missed.start
        where = (f"{self.address - missed.start:,} bytes behind its start" if self.address >= missed.start else
                 f"{missed.start - self.address:,} bytes before its start")
        block, thread = tuple(self.place[:3]), tuple(self.place[3:])
        return (f"it {'writes' if self.write else 'reads'} {self.size} bytes out of the bounds of argument"
                f" {places[self.buffer]}, which has {nbytes:,} bytes: {where}, in thread {thread} of block {block}")


class HostStream(Stream):
    """Order of work on the host, which is done at once: up to the first kernel that failed."""

    def __init__(self) -> None:
        super().__init__()
        #: The marks before the kernel that failed.
        self.sound: int | None = None

    @property
    def passed(self) -> int:
        return self.marks if self.sound is None else self.sound


class HostKernel(CompiledKernel):
    """A kernel of a loaded shared object, and what its launches take."""

    def __init__(self, device: HostDevice, source: Source, name: str, unit: int, sizes: Sequence[int]):
        super().__init__(device, source, name)
        self.unit = unit
        offsets = [sum(sizes[:place]) for place in range(len(sizes))]
        self.parameters = Parameters(name, list(zip(offsets, sizes, strict=True)))


class HostDevice(Device):
    """This machine's CPU and memory as a device.

    Parameters
    ----------
    memory : int
        The most bytes that its buffers may hold; 0 for as many as the machine has.
    cache : KernelCache
        Where compiled kernels are kept on disk.
    shared_limit : int
        The most shared memory that a block may have, in bytes; 0 for what an H100 has.
    bounds : bool
        Whether each access of a kernel to memory is checked against the buffers that it was launched with.

    Raises
    ------
    DeviceUnavailable
        If there is no C++ compiler, or it cannot compile the runtime.

    Examples
    --------
    >>> device = HostDevice(cache=KernelCache())
    >>> stream, source = device.stream(), Source("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
    >>> buffer = device.allocate(16, stream=stream)
    >>> device.copy_in(buffer, np.arange(4, dtype="f4").view("u1"), stream=stream)
    >>> device.launch(device.compile(source, "twice"), (1,), (4,), [buffer], stream=stream)
    >>> result = np.empty(4, "f4")
    >>> device.copy_out(result.view("u1"), buffer, stream=stream)
    >>> result.tolist()
    [0.0, 2.0, 4.0, 6.0]
    >>> buffer.close()
    """

    kind: ClassVar[str] = "host"
    work_bytes: ClassVar[int] = 1 << 20

    def __init__(self, name: str = "host:0", *, memory: int = 0, cache: KernelCache, shared_limit: int = 0,
                 bounds: bool = False):
        super().__init__(name, os.cpu_count() or 1, min(shared_limit or SHARED_BYTES, SHARED_BYTES))
        self._limits = replace(LIMITS, shared=self.shared_limit)
        self._cache = cache
        self._compiler = Compiler.find(bounds=bounds)
        self._runtime = _runtime(self._compiler, cache)
        self._memory = HostMemory(name, memory, _GAP if bounds else 0)
        self._kernels: LoadedKernels[HostKernel] = LoadedKernels()
        self._fault = ""
        self._closed = False

    def stream(self) -> Stream:
        return HostStream()

    def allocate(self, nbytes: int, *, stream: Stream, is_for_messages: bool = False) -> Buffer:
        self._check_usable()
        return Buffer(self, self._memory.take(nbytes) if nbytes else 0, nbytes)

    def free(self, buffer: Buffer) -> None:
        if isinstance(buffer, shared_memory.MappedMemfd):
            self._memory.unreserve(buffer.reserved)
            shared_memory.unmap(buffer)
        elif buffer.nbytes:
            self._memory.give(buffer.address, buffer.nbytes)

    @property
    def shares(self) -> str:
        return "host"

    def share_memory(self, nbytes: int) -> SharedMemory:
        self._memory.reserve(nbytes)
        with ExitStack() as undo:
            undo.callback(self._memory.unreserve, nbytes)
            buffer, descriptor = shared_memory.created(self, nbytes)
            undo.pop_all()
        return SharedMemory(buffer, descriptor, functools.partial(shared_memory.protect, buffer))

    def map_memory(self, descriptor: int, nbytes: int) -> Buffer:
        return shared_memory.mapped(self, descriptor, nbytes)

    def copy_in(self, target: Buffer, source: np.ndarray, *, stream: Stream) -> None:
        with stream.clock:
            self._copy(target.address, target.nbytes, source.ctypes.data, source.nbytes)
        stream.note(self.copy_in, target, source)

    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: Stream) -> None:
        if target.nbytes > source.nbytes:
            raise ValueError(f"a copy of {target.nbytes:,} bytes does not fit {source.nbytes:,}")
        with stream.clock:
            self._copy(target.ctypes.data, target.nbytes, source.address, target.nbytes)
        stream.note(self.copy_out, target, source)

    def copy_across(self, target: Buffer, source: Buffer, *, stream: Stream) -> None:
        with stream.clock:
            self._copy(target.address, target.nbytes, source.address, source.nbytes)
        stream.note(self.copy_across, target, source)

    def _copy(self, target: int, capacity: int, source: int, nbytes: int) -> None:
        self._check_usable()
        check_fits(nbytes, capacity)
        if nbytes:
            ctypes.memmove(target, source, nbytes)

    def compiled(self, source: Source, name: str) -> HostKernel:
        self._check_usable()
        return self._kernels.get(source, name, self._load)

    def _load(self, source: Source, name: str) -> HostKernel:
        self.counts.loaded += 1
        # A copy of its own for each source, as the loader would share one file's variables among all its users.
        library = _loaded(self._compiler.unit(source, name, self._cache), self._cache.directory)
        library.vispark_unit.restype = ctypes.c_void_p
        unit = library.vispark_unit(ctypes.c_void_p(self._runtime.vispark_runtime()))
        for place, (constant, data) in enumerate(source.constants):
            _fill(library, place, constant, data, source)
        if POINTER in source.text:
            ctypes.c_void_p.in_dll(library, POINTER).value = crash_record.report_address()
        kernel = HostKernel(self, source, name, unit, [library.vispark_size(i) for i in range(library.vispark_count())])
        # Whoever may launch it has it, and a launch is over when it returns.
        weakref.finalize(kernel, _ctypes.dlclose, library._handle).atexit = False
        return kernel

    def check(self, call: PackedLaunch) -> None:
        check_launch(call.kernel.name, call.grid, call.block, self._limits, call.shared)

    def packed(self, kernel: Any, arguments: Sequence[LaunchValue]) -> bytes:
        return kernel.parameters.pack(arguments)

    def start(self, call: PackedLaunch, *, stream: Any) -> None:
        self._check_usable()
        padding = (1,) * _THREE
        bounds = _Bounds.of(call) if self._compiler.bounds else None
        with stream.clock:
            status = self._runtime.vispark_run(call.kernel.unit, *(call.grid + padding)[:_THREE],
                                               *(call.block + padding)[:_THREE], call.packed,
                                               crash_record.current_slot(),
                                               None if bounds is None else ctypes.byref(bounds), caller.address())
        if status == _UNWANTED:
            raise LaunchError(f"the kernel {call.kernel.name} of {call.kernel.source.file} was left off, as the client "
                              "that waited for it is gone")
        words = self._runtime.vispark_fault().decode() if status else "" if bounds is None else bounds.words(call)
        if status == _NO_STACKS:    # the blocks that ran wrote to nothing that was there before
            raise OutOfMemory(f"the kernel {call.kernel.name} of {call.kernel.source.file} on {self.name}: {words}; "
                              "smaller blocks of threads need less")
        if words:
            stream.sound = stream.marks
            self._fault = f"the kernel {call.kernel.name} of {call.kernel.source.file} failed on {self.name}: {words}"

    def synchronize(self, *, stream: Stream) -> None:
        self._check_usable()

    def query(self, *, stream: Stream) -> None:
        self._check_usable()

    def memory(self) -> Memory:
        return self._memory.figures()

    def close(self) -> None:
        self._closed = True
        self._kernels.clear()
        self._memory.release()

    def _check_usable(self) -> None:
        if self._fault:
            raise KernelFault(self._fault)
        if self._closed:
            raise DeviceUnavailable(f"{self.name} is closed")


def open_host(*, memory: int, addresses: Sequence[str], cache_dir: str, shared_limit: int = 0,
              bounds: bool = False, count: int = 0) -> list[HostDevice]:
    """Open the host as one device, or as ``count`` of them, which share its cores.

    Parameters
    ----------
    memory : int
        The most bytes that the buffers of each may hold; 0 for as many as the machine has.
    addresses : sequence of str
        Which of the ``count`` devices to open; empty for all. They mean nothing where the host is one device.
    cache_dir : str
        Directory of the compiled kernels.
    shared_limit, bounds
        As for :class:`HostDevice`.

    Raises
    ------
    DeviceUnavailable
        If there is no C++ compiler.
    """
    cache = KernelCache(cache_dir)
    return [HostDevice(f"host:{number}", memory=memory, cache=cache, shared_limit=shared_limit, bounds=bounds)
            for number in (numbered("host", count, addresses) if count else [0])]


def _fill(library: ctypes.CDLL, place: int, name: str, data: bytes, source: Source) -> None:
    find = library[f"vispark_constant_{place}"]
    find.restype = _Symbol
    symbol = find()
    if len(data) > symbol.nbytes:
        raise CompileError(f"__constant__ {name} of {source.file} holds {symbol.nbytes} bytes, {len(data)} were given")
    ctypes.memmove(symbol.address, data, len(data))


def _loaded(code: bytes, directory: Path) -> ctypes.CDLL:
    why = f"compiled code is loaded from the kernel cache {directory}, which needs room and must not be mounted noexec"
    with system_call(why, DeviceUnavailable), \
            tempfile.NamedTemporaryFile(prefix=".load-", suffix=".so", dir=directory) as file:
        file.write(code)
        file.flush()
        return ctypes.CDLL(file.name)


@functools.cache
def _runtime_once() -> tuple[threading.Lock, list[ctypes.CDLL]]:
    return threading.Lock(), []


def _runtime(compiler: Compiler, cache: KernelCache) -> ctypes.CDLL:
    """Return the runtime, loaded once in a process, with its signal handlers installed."""
    lock, loaded = _runtime_once()
    with lock:
        if not loaded:
            library = _loaded(compiler.runtime(cache), cache.directory)
            library.vispark_runtime.restype = ctypes.c_void_p
            library.vispark_fault.restype = ctypes.c_char_p
            extents = [ctypes.c_uint] * 2 * _THREE
            pointers = [ctypes.c_void_p] * 3
            library.vispark_run.argtypes = ctypes.c_void_p, *extents, ctypes.c_char_p, *pointers
            library.vispark_install()
            loaded.append(library)
    return loaded[0]
