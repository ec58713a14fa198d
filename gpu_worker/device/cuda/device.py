"""The ``cuda`` device: one NVIDIA GPU.

PyCUDA, or the same names by cuda-bindings alone (:mod:`gpu_worker.device.cuda.layer`), owns contexts, streams, events,
modules, launches and copies. What PyCUDA lacks comes through cuda-bindings on its handles: stream-ordered allocation,
pinning of memory that is not NumPy's, peer copies (PyCUDA 2026.1 dereferences a null context there), the kernels'
parameters, and the codes of errors.

PyCUDA keeps a stack of contexts per thread and ends the process if a thread ends with one on it, and it destroys
streams and modules only while their context is current. So calls run inside :meth:`CudaDevice.active`, and streams and
modules that nobody holds any more go back to the device, which destroys them there. By cuda-bindings a context stays a
thread's (:mod:`gpu_worker.device.cuda.current`).
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpu_worker.device.base import (
    Buffer,
    CompiledKernel,
    Device,
    LaunchValue,
    Memory,
    PackedLaunch,
    RecordedWork,
    SharedMemory,
    Source,
    Stream,
    TapeEntry,
)
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.clock import UNTIMED
from gpu_worker.device.cuda import shared_memory
from gpu_worker.device.cuda.clock import EventClock, wait_asleep
from gpu_worker.device.cuda.current import Current, Pushed
from gpu_worker.device.cuda.driver import PINNED, DriverError, bindings, check, parameter_layout
from gpu_worker.device.cuda.graph import Graph
from gpu_worker.device.cuda.layer import cuda_driver, missing
from gpu_worker.device.cuda.module_globals import variables
from gpu_worker.device.cuda.native_driver import PrimaryContext
from gpu_worker.device.cuda.nvrtc import INSTALL, Cubin, architecture, compile_cubin, cubin_key, nvrtc_version
from gpu_worker.device.cuda.pool import MemoryPool
from gpu_worker.device.launch_limits import (
    Limits,
    Multiprocessor,
    Parameters,
    check_fits,
    check_launch,
    named,
    ordinals,
)
from gpu_worker.device.loaded_kernels import LoadedKernels
from gpu_worker.protocol.device_kinds import AddressUnknown
from gpu_worker.protocol.errors import (
    CompileError,
    DeviceUnavailable,
    KernelFault,
    LaunchError,
    OutOfMemory,
    VisparkError,
)
from gpu_worker.system.fault_report import reported

log = logging.getLogger(__name__)


#: The oldest driver whose interface tells a kernel's parameters, as CUDA numbers it.
OLDEST_DRIVER = 12040

#: The oldest compute capability that NVRTC knows and that kernels have instructions for.
OLDEST_CAPABILITY = (7, 5)

#: Shared memory of a block, static and dynamic, that CUDA gives without being asked to, in bytes.
SHARED_UNASKED = 48 * 1024

#: CU_STREAM_NON_BLOCKING: not ordered with the default stream, which nothing here uses.
_NON_BLOCKING = 1

#: Errors after which a context, and with it the process, can do no more.
FATAL = frozenset("CUDA_ERROR_" + name for name in (
    "ASSERT", "CONTAINED", "CONTEXT_IS_DESTROYED", "DEINITIALIZED", "ECC_UNCORRECTABLE", "EXTERNAL_DEVICE",
    "HARDWARE_STACK_ERROR", "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "INVALID_ADDRESS_SPACE", "INVALID_PC",
    "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "MISALIGNED_ADDRESS", "MPS_CLIENT_TERMINATED", "NVLINK_UNCORRECTABLE",
    "TENSOR_MEMORY_LEAK", "UNKNOWN"))


class CudaStream(Stream):
    """A stream of PyCUDA, and the same handle for cuda-bindings.

    ``progress`` is a word of pinned memory, into which the stream itself writes the number of each mark that it passes.
    ``event`` is what other streams wait for that wait for this one, recorded anew each time.
    """

    def __init__(self, native: Any, progress: np.ndarray, event: Any):
        super().__init__()
        self.native = native
        self.event = event
        self.handle = bindings.CUstream(native.handle)
        self._progress = progress
        self._progress[0] = 0
        self._address = bindings.CUdeviceptr(progress.ctypes.data)

    @property
    def passed(self) -> int:
        return self.marks - (self.marks - int(self._progress[0])) % 2**32

    def write_mark(self) -> None:
        """Enqueue the write of the last mark's number."""
        check(bindings.cuStreamWriteValue32(self.handle, self._address, self.marks % 2**32, 0))


class CudaBuffer(Buffer):
    """Device memory and the stream it was allocated on.

    It is given back on that stream, so that it is never free before it is there.
    """

    def __init__(self, device: CudaDevice, address: int, nbytes: int, home: Any):
        super().__init__(device, address, nbytes)
        self.home = home


class PlainBuffer(Buffer):
    """Device memory that is of no pool: CUDA lets other processes open such alone, by CUDA IPC."""


class CudaKernel(CompiledKernel):
    """Function of a loaded module, with its parameters and the limits of its launches."""

    def __init__(self, device: CudaDevice, source: Source, name: str, function: Any, parameters: Parameters):
        super().__init__(device, source, name)
        attributes = cuda_driver.function_attribute
        self.function = function
        self.parameters = parameters
        self.threads = function.get_attribute(attributes.MAX_THREADS_PER_BLOCK)
        self.static_shared = function.get_attribute(attributes.SHARED_SIZE_BYTES)
        self.registers = function.get_attribute(attributes.NUM_REGS)
        #: Dynamic shared memory that needs no asking for, or was asked for already, in bytes.
        self.dynamic_shared = max(0, SHARED_UNASKED - self.static_shared)
        #: Grid, block and shared memory of the last launch, which need no second check.
        self.checked: tuple[Any, ...] | None = None


class CudaDevice(Device):
    """One GPU, through its primary context.

    Parameters
    ----------
    ordinal : int
        Its number in this process.
    memory : int
        Bytes that this process may hold on it; 0 for as many as there are.
    cache : KernelCache
        Where compiled kernels are kept on disk.
    shared_limit : int
        The most shared memory that thread blocks may have, in bytes; 0 for as much as there is.

    Raises
    ------
    DeviceUnavailable
        If the device cannot be used.
    """

    kind = "cuda"
    asynchronous = True

    def __init__(self, ordinal: int, *, memory: int, cache: KernelCache, shared_limit: int = 0):
        super().__init__(f"cuda:{ordinal}")
        self.ordinal = ordinal
        self._cache = cache
        self._used, self._fault, self._closed = 0, "", False
        self._kernels: LoadedKernels[CudaKernel] = LoadedKernels()
        self._loading = threading.Lock()
        self._idle: deque[Any] = deque()
        self._unused: deque[Any] = deque()
        self._peers: set[int] = set()
        self._reached: set[int] = set()
        self._active: Pushed | Current
        self._home: Any = None
        self._report = np.zeros(4, np.int64)
        try:
            self._open(memory, shared_limit)
        except (cuda_driver.Error, VisparkError) as error:
            raise DeviceUnavailable(f"{self.name} cannot be used: {error}") from error

    def _open(self, memory: int, shared_limit: int) -> None:
        native = cuda_driver.Device(self.ordinal)
        if native.compute_capability() < OLDEST_CAPABILITY:
            raise DeviceUnavailable("a {} has compute capability {}.{}; {}.{} or later is needed".format(
                native.name(), *native.compute_capability(), *OLDEST_CAPABILITY))
        if not native.get_attribute(cuda_driver.device_attribute.MEMORY_POOLS_SUPPORTED):
            raise DeviceUnavailable(f"a {native.name()} has no memory pools, which vispark allocates from")
        self.arch = architecture(*native.compute_capability())
        self.clusters = self.arch == "sm_90a"
        self.limits = _limits(native)
        self.shared_limit = min(shared_limit or self.limits.shared, self.limits.shared)
        self.limits = replace(self.limits, shared=self.shared_limit)
        self._native = native
        self._total = min(memory or native.total_memory(), native.total_memory())
        self.multiprocessors = native.get_attribute(cuda_driver.device_attribute.MULTIPROCESSOR_COUNT)
        self._multiprocessor = _multiprocessor(native)
        self._context = native.retain_primary_context()
        self._active = (Current if isinstance(self._context, PrimaryContext) else Pushed)(self, self._context)
        with self._active:
            self._home = CudaStream(cuda_driver.Stream(_NON_BLOCKING), np.zeros(1, np.uint32), None)
            self._report = cuda_driver.pagelocked_zeros(4, np.int64)
            self.pool = MemoryPool(self.ordinal)

    @classmethod
    def devices_at(cls, devices: Sequence[Device], addresses: Sequence[str]) -> Sequence[Device]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [devices[number] for number in dict.fromkeys(ordinals(addresses, visible, len(devices)))]

    def active(self) -> Pushed | Current:
        """Return a context in which the device is current in this thread; cheap if it is already.

        CUDA's errors inside become ours: KernelFault, OutOfMemory or LaunchError.
        """
        return self._active

    # -- memory -------------------------------------------------------------------------------------------------------

    def stream(self) -> CudaStream:
        try:
            parts = self._idle.popleft()
        except IndexError:
            with self._active:
                parts = (cuda_driver.Stream(_NON_BLOCKING), cuda_driver.pagelocked_empty(1, np.uint32),
                         cuda_driver.Event(cuda_driver.event_flags.DISABLE_TIMING))
        stream = CudaStream(*parts)
        weakref.finalize(stream, self._idle.append, parts).atexit = False
        return stream

    def clock(self) -> EventClock:
        with self._active:
            return EventClock(self, self._home)

    def allocate(self, nbytes: int, *, stream: Any, is_for_messages: bool = False) -> Buffer:
        if nbytes == 0:
            return CudaBuffer(self, 0, 0, stream.handle)
        with self.lock:
            if self._used + nbytes > self._total:
                raise self._exhausted(nbytes)
            self._used += nbytes
        try:
            with self._active:
                if is_for_messages:
                    return PlainBuffer(self, int(check(bindings.cuMemAlloc(nbytes))), nbytes)
                return CudaBuffer(self, self._take(nbytes, stream), nbytes, stream.handle)
        except VisparkError:
            with self.lock:
                self._used -= nbytes
            raise

    def _exhausted(self, nbytes: int) -> OutOfMemory:
        return OutOfMemory(f"{self.name}: {nbytes:,} bytes do not fit, {self._used:,} of {self._total:,} are in use")

    def _take(self, nbytes: int, stream: Any) -> int:
        exhausted = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        status, address = bindings.cuMemAllocAsync(nbytes, stream.handle)
        if status == exhausted:
            # What was freed on streams that are still busy, and gaps too small for this one, come back so.
            check(bindings.cuCtxSynchronize())
            self.pool.trim()
            status, address = bindings.cuMemAllocAsync(nbytes, stream.handle)
        if status == exhausted:
            free, total = cuda_driver.mem_get_info()
            raise OutOfMemory(f"{self.name}: {nbytes:,} bytes do not fit, {free:,} of {total:,} are free and "
                              f"{self._used - nbytes:,} in use by this process")
        return int(check((status, address)))

    def free(self, buffer: Any) -> None:
        if buffer.nbytes == 0:
            return
        is_shared = isinstance(buffer, shared_memory.MappedAllocation)
        with self.lock:
            self._used -= buffer.reserved if is_shared else buffer.nbytes
        if self._fault or self._closed:
            return
        try:
            with self._active:
                if is_shared:
                    shared_memory.unmap(buffer)
                elif isinstance(buffer, PlainBuffer):
                    check(bindings.cuMemFree(buffer.address))
                else:
                    self.pool.free(buffer.address, buffer.home)
        except KernelFault as error:
            # The memory goes with the process; whoever uses the device next is told.
            log.warning("%s", error)

    @property
    def shares(self) -> str:
        with self._active:
            return self._uuid if shared_memory.is_supported(self.ordinal) else ""

    @cached_property
    def _uuid(self) -> str:
        return _uuid_of(self.ordinal)

    def share_memory(self, nbytes: int) -> SharedMemory:
        with self.lock:
            if self._used + nbytes > self._total:
                raise self._exhausted(nbytes)
            self._used += nbytes
        with ExitStack() as undo:
            undo.callback(self._unreserve, nbytes)
            with self._active:
                # What the pool keeps ready is free memory to nobody else.
                check(bindings.cuCtxSynchronize())
                self.pool.trim()
                buffer, descriptor = shared_memory.created(self, nbytes)
            undo.pop_all()
        return SharedMemory(buffer, descriptor, partial(self._protect, buffer))

    def _protect(self, buffer: Any) -> None:
        with self._active:
            shared_memory.protect(buffer)

    def _unreserve(self, nbytes: int) -> None:
        with self.lock:
            self._used -= nbytes

    def map_memory(self, descriptor: int, nbytes: int) -> Buffer:
        try:
            with self._active:
                return shared_memory.mapped(self, descriptor, nbytes)
        except LaunchError as error:
            raise DeviceUnavailable(f"{self.name} cannot map memory of another process: {error.message}") from error

    def memory(self) -> Memory:
        return Memory(self._used, self._total)

    def pin(self, memory: np.ndarray) -> None:
        if memory.nbytes:
            with self._active:
                PINNED.add(memory)

    def unpin(self, memory: np.ndarray) -> None:
        if memory.nbytes and not (self._fault or self._closed):
            with self._active:
                PINNED.remove(memory)

    # -- copies -------------------------------------------------------------------------------------------------------
    # Through the bindings, which let other threads run: copies of memory that is not pinned wait for the work before.

    def copy_in(self, target: Buffer, source: np.ndarray, *, stream: Any) -> None:
        check_fits(source.nbytes, target.nbytes)
        if source.nbytes:
            with self._active, stream.clock:
                check(bindings.cuMemcpyHtoDAsync(target.address, source.ctypes.data, source.nbytes, stream.handle))
            stream.note(self.copy_in, target, source)

    def copy_out(self, target: np.ndarray, source: Buffer, *, stream: Any) -> None:
        check_fits(target.nbytes, source.nbytes)
        if target.nbytes:
            with self._active, stream.clock:
                check(bindings.cuMemcpyDtoHAsync(target.ctypes.data, source.address, target.nbytes, stream.handle))
            stream.note(self.copy_out, target, source)

    def copy_across(self, target: Any, source: Any, *, stream: Any) -> None:
        check_fits(source.nbytes, target.nbytes)
        if not source.nbytes:
            return
        stream.note(self.copy_across, target, source)
        if target.device is source.device:
            with self._active, stream.clock:
                cuda_driver.memcpy_dtod_async(target.address, source.address, source.nbytes, stream.native)
            return
        ends = [(bindings.CUdeviceptr(end.address), end.device.context_handle) for end in (target, source)]
        with self._active:
            for end in (target, source):
                self._reach(end.device)
            with stream.clock:
                check(bindings.cuMemcpyPeerAsync(*ends[0], *ends[1], source.nbytes, stream.handle))

    @property
    def context_handle(self) -> Any:
        """Its context, for cuda-bindings."""
        return bindings.CUcontext(self._context.handle)

    def _reach(self, other: CudaDevice) -> None:
        """Enable this device's direct access to another's memory, where the machine can; once."""
        if other is self or other.ordinal in self._peers:
            return
        self._peers.add(other.ordinal)
        if not self._native.can_access_peer(other._native):
            return
        status, = bindings.cuCtxEnablePeerAccess(other.context_handle, 0)
        if status != bindings.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
            check((status,))
        # Enabling a context's peers does not cover memory from a pool.
        access = bindings.CUmemAccessDesc()
        access.location.type = bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.ordinal
        access.flags = bindings.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        other.pool.let(access)
        self._reached.add(other.ordinal)

    # -- kernels ------------------------------------------------------------------------------------------------------

    def compiled(self, source: Source, name: str) -> CudaKernel:
        return self._kernels.get(source, name, self._load)

    def _cubin(self, source: Source, name: str) -> Cubin:
        parts = cubin_key(source, name, self.arch)
        if parts is None:
            return compile_cubin(source, name, self.arch)
        cached = self._cache.get(*parts)
        if cached is not None:
            return Cubin.from_bytes(cached)
        cubin = compile_cubin(source, name, self.arch)
        self._cache.put(cubin.to_bytes(), *parts)
        return cubin

    def _load(self, source: Source, name: str) -> CudaKernel:
        cubin = self._cubin(source, name)
        with self._active, self._loading:
            self._unload()
            self.counts.loaded += 1
            module = cuda_driver.module_from_buffer(cubin.code)
            function = module.get_function(cubin.symbol)
            self._fill(module, source, dict(cubin.constants))
            kernel = CudaKernel(self, source, name, function, Parameters(name, parameter_layout(cubin)))
        weakref.finalize(kernel, self._unused.append, (function, module)).atexit = False
        return kernel

    def _unload(self) -> None:
        """Unload the modules of kernels that nobody holds: only when no launch of them is under way, so that those
        which are let go of in this moment wait for the next time.
        """
        count = len(self._unused)
        if count:
            cuda_driver.Context.synchronize()
        for _ in range(count):
            self._unused.popleft()

    def _fill(self, module: Any, source: Source, symbols: dict[str, str]) -> None:
        for name, symbol, data in variables(source, symbols, self._report):
            address, nbytes = module.get_global(symbol)
            if len(data) > nbytes:
                raise CompileError(f"__constant__ {name} of {source.file} holds {nbytes} bytes, {len(data)} were given")
            if data:
                cuda_driver.memcpy_htod_async(address, data, self._home.native)
        self._home.native.synchronize()

    def check(self, call: PackedLaunch) -> None:
        kernel = call.kernel
        sizes = call.grid, call.block, call.shared
        if sizes == kernel.checked:
            return
        limits = self.limits.of_kernel(kernel.threads, kernel.static_shared)
        check_launch(kernel.name, call.grid, call.block, limits, call.shared)
        with self._active, self.lock:
            if call.shared > kernel.dynamic_shared:
                attributes = cuda_driver.function_attribute
                kernel.function.set_attribute(attributes.MAX_DYNAMIC_SHARED_SIZE_BYTES, call.shared)
                kernel.dynamic_shared = call.shared
        kernel.checked = sizes

    def packed(self, kernel: Any, arguments: Sequence[LaunchValue]) -> bytes:
        return kernel.parameters.pack(arguments)

    def start(self, call: PackedLaunch, *, stream: Any) -> None:
        # The entry below PyCUDA's prepared calls: those format the arguments once more and set the block's shape by a
        # call that CUDA has deprecated.
        launch = call.kernel.function._launch_kernel
        # There are many launches, and entering two contexts takes as long as one of them.
        if self._active.is_here and stream.clock is UNTIMED and not (self._fault or self._closed):
            try:
                launch(call.grid, call.block, call.packed, call.shared, stream.native)
            except DriverError as error:
                raise self.translated(error) from error
            return
        with self._active, stream.clock:
            launch(call.grid, call.block, call.packed, call.shared, stream.native)

    def side_by_side(self, kernel: Any, threads: int, shared: int) -> int:
        return self.multiprocessors * self._multiprocessor.resident(threads, kernel.registers,
                                                                    kernel.static_shared + shared)

    def recorded(self, entries: Sequence[TapeEntry], *, stream: Any) -> RecordedWork:
        return Graph(self, stream, entries)

    def mark(self, *, stream: Any) -> int:
        number = super().mark(stream=stream)
        with self._active:
            stream.write_mark()
        return number

    def order(self, other: Any, *, stream: Any, of: Any) -> None:
        # An event belongs to the context of the stream that it is recorded on. Whoever waits for it waits for what was
        # recorded last, and goes on to do so when it is recorded anew.
        with of._active:
            other.event.record(other.native)
        with self._active:
            stream.native.wait_for_event(other.event)

    def reaches(self, other: Device) -> bool:
        if not isinstance(other, CudaDevice):
            return False
        with self._active:
            self._reach(other)
        return other is self or other.ordinal in self._reached

    def synchronize(self, *, stream: Any) -> None:
        with self._active:
            stream.native.synchronize()

    def synchronize_asleep(self, *, stream: Any) -> None:
        with self._active:
            wait_asleep(stream)

    def query(self, *, stream: Any) -> None:
        with self._active:
            status = bindings.cuStreamQuery(stream.handle)[0]
            if status != bindings.CUresult.CUDA_ERROR_NOT_READY:
                check((status,))

    # -- errors and the end -------------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise what makes the device unusable, if something does."""
        if self._fault:
            raise KernelFault(self._fault)
        if self._closed:
            raise DeviceUnavailable(f"{self.name} is closed")

    def translated(self, error: Exception) -> VisparkError:
        """Return CUDA's error as one of ours; one that ended the context is remembered."""
        code = getattr(error, "code", "")
        if code not in FATAL and self._home is not None:
            # PyCUDA's errors carry words only. A context that is lost says so at every call.
            code = bindings.cuStreamQuery(self._home.handle)[0].name
        if code in FATAL:
            self._fault = (f"{self.name}: CUDA reports {code} ({error}); a kernel has failed, and this process can use "
                           f"the device no more and must end{reported(self._report)}")
            return KernelFault(self._fault)
        if isinstance(error, cuda_driver.MemoryError) or code == "CUDA_ERROR_OUT_OF_MEMORY":
            return OutOfMemory(f"{self.name}: {error}; {self._used:,} of {self._total:,} bytes are in use")
        return LaunchError(f"{self.name}: {error}")

    def close(self) -> None:
        if self._closed:
            return
        try:
            if not self._fault:
                with self._active:
                    cuda_driver.Context.synchronize()
                    self._kernels.clear()
                    self._unused.clear()
                    self._idle.clear()
                    self.pool.trim()
        except VisparkError as error:
            log.warning("%s was not closed in order: %s", self.name, error)
        self._closed = True
        self._release()

    def _release(self) -> None:
        """Release the primary context from whichever thread this is; PyCUDA does so only for the context on top.

        A context that is lost cannot be put there, but PyCUDA must know that it is gone: it ends the process when it
        cannot make the context of a stream current in order to destroy it.
        """
        try:
            self._context.push()
            bindings.cuCtxPopCurrent()
        except cuda_driver.Error as error:
            log.warning("%s was not released: %s", self.name, error)
        try:
            self._context.detach()
        except cuda_driver.Error as error:
            log.warning("%s was not detached: %s", self.name, error)


#: Whether CUDA was called in this process; from then on it does not look at CUDA_VISIBLE_DEVICES.
_INITIALIZED = threading.Event()


def open_cuda(*, memory: int, addresses: Sequence[str], cache_dir: str, shared_limit: int = 0) -> list[CudaDevice]:
    """Open the GPUs that Spark assigned, or all.

    Parameters
    ----------
    memory : int
        Bytes that this process may hold on each; 0 for as many as there are.
    addresses : sequence of str
        Spark's addresses of the GPUs; empty for all.
    cache_dir : str
        Directory of the compiled kernels; empty for the user's cache directory.
    shared_limit : int
        The most bytes of shared memory that their thread blocks may have; 0 for as many as there are.

    Returns
    -------
    list of CudaDevice
        At least one; one for each of ``addresses``, in their order, of two names of one GPU the same.

    Raises
    ------
    DeviceUnavailable
        If PyCUDA, the driver, NVRTC or a device is missing; AddressUnknown if there is none at an address.
    """
    if lacking := missing():
        raise DeviceUnavailable(f"the cuda device needs cuda-bindings or PyCUDA with it, and an NVIDIA driver "
                                f"({lacking}): {INSTALL}")
    count = _visible(addresses)
    nvrtc_version()
    cache = KernelCache(cache_dir)
    assigned = ordinals(addresses, os.environ.get("CUDA_VISIBLE_DEVICES"), count, _uuids(addresses, count))
    devices: dict[int, CudaDevice] = {}
    try:
        for ordinal in dict.fromkeys(assigned):
            devices[ordinal] = CudaDevice(ordinal, memory=memory, cache=cache, shared_limit=shared_limit)
    except VisparkError:
        for device in devices.values():
            device.close()
        raise
    return [devices[ordinal] for ordinal in assigned]


def _visible(addresses: Sequence[str]) -> int:
    """Return the number of GPUs that this process sees, once it shows the MIG instance among the addresses.

    Raises
    ------
    DeviceUnavailable
        If there is none, or the driver is too old; AddressUnknown if that may be so because of the instance.
    """
    unavailable = AddressUnknown if _show_instance(addresses) else DeviceUnavailable
    _INITIALIZED.set()
    try:
        cuda_driver.init()
        count, version = cuda_driver.Device.count(), cuda_driver.get_driver_version()
    except cuda_driver.Error as error:
        those = f" for Spark's addresses {', '.join(map(repr, addresses))}" if addresses else ""
        raise unavailable(f"there is no usable NVIDIA GPU here{those}: {error}") from error
    if version < OLDEST_DRIVER:
        raise DeviceUnavailable(f"the NVIDIA driver speaks CUDA {version // 1000}.{version % 1000 // 10}; "
                                f"{OLDEST_DRIVER // 1000}.{OLDEST_DRIVER % 1000 // 10} or newer is needed")
    if not count and unavailable is AddressUnknown:
        raise AddressUnknown(f"Spark assigned {named(addresses)}, and CUDA shows no MIG instance here")
    return count


def _show_instance(addresses: Sequence[str]) -> bool:
    """Make a MIG instance visible, if there is one among the addresses, and return whether there is.

    CUDA shows a process one instance, if it is named before the first call; named later, it would stand for the GPU
    that is the first.
    """
    instances = [address for address in addresses if address.startswith("MIG-")]
    if instances and not _INITIALIZED.is_set():
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", instances[0])
    return bool(instances)


def _uuids(addresses: Sequence[str], count: int) -> list[str]:
    """Return the UUIDs of all visible GPUs and instances, if some address may be one."""
    if all(address.isdecimal() for address in addresses):
        return []
    return [_uuid_of(ordinal) for ordinal in range(count)]


def _uuid_of(ordinal: int) -> str:
    # Before CUDA 13 the first version of the call gave an instance its GPU's UUID.
    uuid_of = getattr(bindings, "cuDeviceGetUuid_v2", bindings.cuDeviceGetUuid)
    number = uuid.UUID(bytes=bytes(check(uuid_of(bindings.CUdevice(ordinal))).bytes))
    instance = os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
    return f"{'MIG' if instance else 'GPU'}-{number}"


def _limits(native: Any) -> Limits:
    attributes = cuda_driver.device_attribute
    grid = tuple(native.get_attribute(getattr(attributes, f"MAX_GRID_DIM_{axis}")) for axis in "XYZ")
    block = tuple(native.get_attribute(getattr(attributes, f"MAX_BLOCK_DIM_{axis}")) for axis in "XYZ")
    return Limits(grid, block, native.get_attribute(attributes.MAX_THREADS_PER_BLOCK),
                  native.get_attribute(attributes.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))


def _multiprocessor(native: Any) -> Multiprocessor:
    attributes = cuda_driver.device_attribute
    return Multiprocessor(*(native.get_attribute(getattr(attributes, f"MAX_{what}_PER_MULTIPROCESSOR"))
                            for what in ("REGISTERS", "SHARED_MEMORY", "THREADS")))
