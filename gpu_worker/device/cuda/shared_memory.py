"""Memory of a GPU that other processes map: physical allocations of CUDA's virtual memory management, by descriptor.

The driver keeps an allocation for as long as a process has it mapped or a descriptor of it is open, whoever made it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

from gpu_worker.device.base import Buffer
from gpu_worker.device.cuda.driver import bindings, check
from gpu_worker.protocol.errors import DeviceUnavailable


class MappedAllocation(Buffer):
    """Mapped allocation as a buffer: ``size`` bytes of addresses, of which ``reserved`` count as the device's."""

    def __init__(self, device: Any, address: int, nbytes: int, size: int, reserved: int):
        super().__init__(device, address, nbytes)
        self.size = size
        self.reserved = reserved


def is_supported(ordinal: int) -> bool:
    """Return whether a GPU's memory can be passed to other processes by descriptor."""
    attributes = bindings.CUdevice_attribute
    return all(check(bindings.cuDeviceGetAttribute(each, bindings.CUdevice(ordinal))) for each in (
        attributes.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        attributes.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))


def created(device: Any, nbytes: int) -> tuple[MappedAllocation, int]:
    """Return new memory of ``nbytes`` bytes, writable here, and its descriptor. The device is current."""
    size = _rounded(nbytes, device)
    handle = check(bindings.cuMemCreate(size, _properties(device), 0))
    try:
        with ExitStack() as undo:
            descriptor = int(check(bindings.cuMemExportToShareableHandle(handle, _posix(), 0)))
            undo.callback(os.close, descriptor)
            buffer = MappedAllocation(device, _mapped(device, handle, size, is_writable=True), nbytes, size, nbytes)
            undo.pop_all()
    finally:
        check(bindings.cuMemRelease(handle))        # which stays, as it is mapped
    return buffer, descriptor


def mapped(device: Any, descriptor: int, nbytes: int) -> MappedAllocation:
    """Return a buffer that reads the memory of a descriptor. The device is current.

    Raises
    ------
    DeviceUnavailable
        If it is no allocation that :func:`created` made, or of a GPU that this one cannot map.
    """
    status, handle = bindings.cuMemImportFromShareableHandle(descriptor, _posix())
    if status != bindings.CUresult.CUDA_SUCCESS:        # CUDA_ERROR_UNKNOWN among others, which says nothing of kernels
        raise DeviceUnavailable(f"{device.name} cannot map memory of another process: {status.name}")
    size = _rounded(nbytes, device)
    try:
        return MappedAllocation(device, _mapped(device, handle, size, is_writable=False), nbytes, size, 0)
    finally:
        check(bindings.cuMemRelease(handle))


def protect(buffer: MappedAllocation) -> None:
    """Make a buffer read-only for this process's kernels."""
    check(bindings.cuCtxSynchronize())
    _allow(buffer.device, buffer.address, buffer.size, is_writable=False)


def unmap(buffer: MappedAllocation) -> None:
    """Unmap a buffer, after all work of this process on the device."""
    check(bindings.cuCtxSynchronize())
    check(bindings.cuMemUnmap(buffer.address, buffer.size))
    check(bindings.cuMemAddressFree(buffer.address, buffer.size))


def _posix() -> Any:
    return bindings.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def _properties(device: Any) -> Any:
    properties = bindings.CUmemAllocationProp()
    properties.type = bindings.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device.ordinal
    properties.requestedHandleTypes = _posix()
    return properties


def _rounded(nbytes: int, device: Any) -> int:
    step = int(check(bindings.cuMemGetAllocationGranularity(
        _properties(device), bindings.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM)))
    return -(-nbytes // step) * step


def _mapped(device: Any, handle: Any, size: int, *, is_writable: bool) -> int:
    with ExitStack() as undo:
        address = int(check(bindings.cuMemAddressReserve(size, 0, 0, 0)))
        undo.callback(bindings.cuMemAddressFree, address, size)
        check(bindings.cuMemMap(address, size, 0, handle, 0))
        undo.callback(bindings.cuMemUnmap, address, size)
        _allow(device, address, size, is_writable=is_writable)
        undo.pop_all()
    return address


def _allow(device: Any, address: int, size: int, *, is_writable: bool) -> None:
    access = bindings.CUmemAccessDesc()
    access.location.type = bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device.ordinal
    flags = bindings.CUmemAccess_flags
    access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if is_writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
    check(bindings.cuMemSetAccess(address, size, [access], 1))
