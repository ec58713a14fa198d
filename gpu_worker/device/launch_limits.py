"""Limits of launches on a GPU, and the layout of kernel arguments; without CUDA, so that this module runs anywhere."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from gpu_worker.device.base import Buffer, Late, LaunchValue
from gpu_worker.protocol.device_kinds import AddressUnknown
from gpu_worker.protocol.errors import DeviceUnavailable, LaunchError

#: Bytes of shared memory of a block on devices that are no GPUs: what an H100 or H200 has.
SHARED_BYTES = 227 * 1024

#: Threads of a warp, the registers that it is given at a time, and the bytes of shared memory that each block takes
#: beside its own.
_WARP, _REGISTERS, _RESERVED = 32, 256, 1024


@dataclass(frozen=True)
class Limits:
    """Limits of launches on a device.

    Attributes
    ----------
    grid, block : tuple of int
        The largest extents, in blocks and in threads, of x, y and z.
    threads : int
        The most threads of a block.
    shared : int
        The most bytes of dynamic shared memory of a block.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    threads: int
    shared: int

    def of_kernel(self, threads: int, static_shared: int) -> Limits:
        """Return the limits of one kernel, which may be narrower than its device's."""
        return replace(self, threads=min(self.threads, threads), shared=self.shared - static_shared)


@dataclass(frozen=True)
class Multiprocessor:
    """Resources that the thread blocks on one multiprocessor share: registers, bytes of shared memory, and threads."""

    registers: int
    shared: int
    threads: int

    def resident(self, threads: int, registers: int, shared: int) -> int:
        """Return the number of thread blocks that are resident at once, each of ``threads`` threads; a thread has
        ``registers``, a block ``shared`` bytes.

        Examples
        --------
        >>> Multiprocessor(65_536, 233_472, 2048).resident(128, 167, 0)
        3
        """
        warps = -(-threads // _WARP)
        by_registers = self.registers // (-(-max(1, registers) * _WARP // _REGISTERS) * _REGISTERS * warps)
        return min(by_registers, self.shared // (shared + _RESERVED), self.threads // (warps * _WARP))


def check_launch(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], limits: Limits, shared: int) -> None:
    """Check grid, block and dynamic shared memory (bytes) against the limits.

    Raises
    ------
    LaunchError
        If one of them is out of range.
    """
    for what, extents, largest in (("grid", grid, limits.grid), ("block", block, limits.block)):
        if not 1 <= len(extents) <= 3:
            raise LaunchError(f"the {what} {extents} of {kernel} has {len(extents)} extents; it must have 1 to 3")
        if not all(1 <= extent <= most for extent, most in zip(extents, largest, strict=False)):
            raise LaunchError(f"the {what} {extents} of {kernel} is out of range: its extents must be from 1 to "
                              f"{', '.join(map(str, largest[:len(extents)]))}")
    if prod(block) > limits.threads:
        raise LaunchError(f"the block {block} of {kernel} has {prod(block)} threads; this kernel can have "
                          f"{limits.threads}")
    if not 0 <= shared <= limits.shared:
        raise LaunchError(f"{kernel} cannot have {shared} bytes of dynamic shared memory; 0 to {limits.shared} are "
                          "possible")


class Parameters:
    """A kernel's parameters, which pack arguments into the bytes that a launch takes.

    Parameters
    ----------
    kernel : str
        The kernel's name, for errors.
    layout : sequence of (int, int)
        Offset and size of each parameter, in bytes.
    """

    def __init__(self, kernel: str, layout: Sequence[tuple[int, int]]):
        self._kernel = kernel
        self._sizes = [size for _, size in layout]
        ends = [0, *(offset + size for offset, size in layout)]
        self._gaps = [f"{offset - end}x" for (offset, _), end in zip(layout, ends, strict=False)]
        self._packers: dict[tuple[type, ...], _PackedBy] = {}

    def pack(self, arguments: Sequence[LaunchValue]) -> bytes:
        """Return the arguments as the kernel finds them: an address for a buffer, a NumPy scalar's bytes.

        Raises
        ------
        LaunchError
            If their number or a size is not the kernel's.
        """
        kinds = (*[type(argument) for argument in arguments],)
        packer = self._packers.get(kinds)
        if packer is None:
            packer = self._packer(arguments)
            if all(_has_one_size(kind) for kind in kinds):
                self._packers[kinds] = packer
        pack, readers = packer
        return pack(*[read(argument) for read, argument in zip(readers, arguments, strict=True)])

    def _packer(self, arguments: Sequence[LaunchValue]) -> _PackedBy:
        """Return a packer of arguments of these types, which fit the kernel."""
        if len(arguments) != len(self._sizes):
            raise LaunchError(f"{self._kernel} takes {len(self._sizes)} arguments, {len(arguments)} were given")
        form, readers = "<", list[Callable[[Any], Any]]()
        for place, (argument, size, gap) in enumerate(zip(arguments, self._sizes, self._gaps, strict=True), 1):
            is_address = isinstance(argument, Buffer)
            if not is_address and not isinstance(argument, np.generic | Late):
                raise LaunchError(f"argument {place} of {self._kernel} is a {type(argument).__name__}; it must be "
                                  "a buffer or a NumPy scalar")
            nbytes = 8 if is_address else len(_bytes_of(argument))
            if nbytes != size:
                raise LaunchError(f"argument {place} of {self._kernel} must have {size} bytes; "
                                  f"{_describe(argument)} has {nbytes}")
            code = "Q" if is_address else _CODES.get(type(argument), "")
            form += gap + (code or f"{size}s")
            readers.append(_ADDRESS if is_address else _itself if code else _bytes_of)
        return struct.Struct(form).pack, readers


#: What packs values, and what takes each of them from an argument.
_PackedBy = tuple[Callable[..., bytes], list[Callable[[Any], Any]]]

_ADDRESS = attrgetter("address")

#: Types that struct packs by themselves, to the same bits and in a third of the time that their bytes take.
_CODES = {np.bool_: "?", np.int8: "b", np.uint8: "B", np.int16: "h", np.uint16: "H", np.int32: "i", np.uint32: "I",
          np.int64: "q", np.uint64: "Q", np.float64: "d"}


def _has_one_size(kind: type) -> bool:
    """Return whether all arguments of a type take as many bytes."""
    return issubclass(kind, Buffer) or issubclass(kind, np.number | np.bool_)


def _itself(argument: np.generic) -> np.generic:
    return argument


def _bytes_of(argument: Any) -> bytes:
    """Return the bytes of a scalar, or of a value that changes."""
    return (argument.value if isinstance(argument, Late) else argument).tobytes()


def _describe(argument: LaunchValue) -> str:
    if isinstance(argument, Buffer):
        return "a buffer's address"
    return f"a {(argument.value if isinstance(argument, Late) else argument).dtype}"


def check_fits(nbytes: int, capacity: int) -> None:
    """Raise ValueError where a copy is larger than its target."""
    if nbytes > capacity:
        raise ValueError(f"a copy of {nbytes:,} bytes does not fit {capacity:,}")


def numbered(kind: str, count: int, addresses: Sequence[str]) -> list[int]:
    """Return the numbers of those of a kind's ``count`` devices that have the addresses; all, if none are given.

    Raises
    ------
    AddressUnknown
        If there is none at some of the addresses; the message has them all.

    Examples
    --------
    >>> numbered("host", 4, ["2", "3"]), numbered("host", 2, [])
    ([2, 3], [0, 1])
    """
    unknown = [address for address in addresses
               if not (address.isascii() and address.isdecimal() and int(address) < count)]
    if unknown:
        raise AddressUnknown(f"Spark assigned {named(unknown)}, but the devices of {kind}:{count} have the addresses "
                             f"0 to {count - 1}")
    return list(map(int, addresses)) or list(range(count))


def named(addresses: Sequence[str]) -> str:
    """Return GPUs as errors name them.

    Examples
    --------
    >>> named(["3"]), named(["3", "MIG-5c"])
    ("the GPU '3'", "the GPUs '3', 'MIG-5c'")
    """
    return f"the GPU{'s' if len(addresses) > 1 else ''} {', '.join(map(repr, addresses))}"


def ordinals(addresses: Sequence[str], visible: str | None, count: int, uuids: Sequence[str] = ()) -> list[int]:
    """Return the numbers, in this process, of the GPUs with Spark's addresses.

    An address that stands in CUDA_VISIBLE_DEVICES is its place there, since CUDA numbers the visible GPUs from 0; any
    other is a number already, or the UUID of a GPU or a MIG instance, of which the beginning is enough. Where CUDA
    shows a MIG instance, numbers are those of GPUs that it does not show.

    Parameters
    ----------
    addresses : sequence of str
        Spark's addresses; empty for all.
    visible : str or None
        The value of CUDA_VISIBLE_DEVICES.
    count : int
        How many GPUs this process sees.
    uuids : sequence of str
        Their UUIDs, as "GPU-..." or "MIG-..."; they may be left out where no address is one.

    Returns
    -------
    list of int
        One for each address, in their order; of two names of one GPU the same.

    Raises
    ------
    DeviceUnavailable
        If there is none.
    AddressUnknown
        If some of the addresses name no GPU that this process sees, or more than one; the message has them all.

    Examples
    --------
    >>> ordinals(["3"], "2,3", 2)
    [1]
    >>> ordinals(["MIG-5c", "1"], None, 2, ["GPU-11aa", "MIG-5c3f"])
    [1, 1]
    """
    if count == 0:
        raise DeviceUnavailable("this process sees no GPU" + (f" (CUDA_VISIBLE_DEVICES={visible})" if visible else ""))
    if not addresses:
        return list(range(count))
    entries = [entry.strip() for entry in (visible or "").split(",")]
    places = {address: _places(address, entries, count, uuids) for address in addresses}
    unknown = [address for address, found in places.items() if len(found) != 1]
    if unknown:
        one = any("MIG-" in address for address in unknown) or "MIG-" in (visible or "")
        raise AddressUnknown(f"Spark assigned {named(unknown)}, but this process sees {count} GPUs"
                             + (f" (CUDA_VISIBLE_DEVICES={visible})" if visible else "")
                             + (f": {', '.join(uuids)}" if uuids else "")
                             + (", of MIG instances one at most: give an application one instance on each node"
                                if one else ""))
    return [places[address][0] for address in addresses]


def _places(address: str, shown: Sequence[str], count: int, uuids: Sequence[str]) -> list[int]:
    """Return the numbers below ``count`` of the GPUs that an address may mean."""
    if address in shown:
        places = [shown.index(address)]
    elif address.isdecimal():
        places = [] if any(entry.startswith("MIG-") for entry in shown) else [int(address)]
    else:
        places = [place for place, uuid in enumerate(uuids) if uuid.lower().startswith(address.lower())]
    return [place for place in places if place < count]
