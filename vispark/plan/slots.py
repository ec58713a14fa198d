"""Tables of what a plan refers to by position: kernel sources, and the values of each pass."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.messages import ArgumentValue, Module
from gpu_worker.protocol.payload import PLACED_FROM, Payload, aligned
from gpu_worker.protocol.shared import INLINE_BYTES, BufferLease, Shared
from vispark.plan.cuda_source import ArrayValue, Kernels
from vispark.plan.references import HeldValue, TableReference


@dataclass(frozen=True, slots=True)
class ArgumentRef:
    """Reference to an argument or a capture of the call at a position of a chain; its value may differ in each pass."""

    position: int
    kind: str
    number: int


#: Where a slot's value comes from: a call, or the plan itself.
SlotOrigin = ArgumentRef | ArrayValue


class SlotTable:
    """Table of a plan's slots of values, numbered in the order in which they are first needed.

    Examples
    --------
    >>> import numpy as np
    >>> table = SlotTable()
    >>> table.slot(ArgumentRef(2, "argument", 0)), table.slot(ArrayValue.of(np.ones(2), "v"))
    (0, 1)
    >>> table.slot(ArgumentRef(2, "argument", 0))
    0
    """

    def __init__(self) -> None:
        self._slots: dict[SlotOrigin, int] = {}

    def slot(self, origin: SlotOrigin) -> int:
        """Return the slot of a value, added if it is new."""
        return self._slots.setdefault(origin, len(self._slots))

    def origins(self) -> tuple[SlotOrigin, ...]:
        """Return the origins of the values, by slot."""
        return tuple(self._slots)


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Values of one pass, by slot: the smallest travel in the message, the others in the payload."""

    values: tuple[ArrayValue, ...]

    def at(self, home: Hashable) -> BoundArguments:
        """Return the values for the worker at an address and of an epoch: references to the tables that it holds, and
        the content of those that it lacks.
        """
        if not any(isinstance(value.data, TableReference) for value in self.values):
            return self
        return BoundArguments(tuple([replace(value, data=value.data.at(home)) if isinstance(value.data, TableReference)
                                     else value for value in self.values]))

    def constants(self, offset: int, inline: int = INLINE_BYTES) -> tuple[tuple[ArgumentValue, ...], int]:
        """Return the protocol's records, and the bytes of the payload from ``offset`` on that the large values take;
        the others are ``inline`` bytes at most, all together.
        """
        if sum([len(value.data) for value in self.values]) <= inline:
            return tuple([ArgumentValue(value.dtype, value.shape, bytes(value.data), 0) if isinstance(value.data, bytes)
                          else _argument(value, -1) for value in self.values]), 0
        placed = self._placed(offset, inline)
        records = tuple(map(_argument, self.values, placed))
        last = placed.index(max(placed))
        return records, placed[last] + aligned(len(self.values[last].data)) - offset

    def inline_bytes(self, *, is_beside: bool) -> int:
        """Return the bytes of the values that travel in the message: few, where others have room in memory that
        is sent beside it anyway, and were not captured into memory.
        """
        return PLACED_FROM if is_beside and not any(isinstance(value.data, Shared) for value in self.values) \
            else INLINE_BYTES

    def lease(self) -> BufferLease | None:
        """Return the memory that the only large value was captured into, if :meth:`constants` with offset 0 would place
        the value there.
        """
        large: Shared | None = None
        nbytes = 0
        for value in self.values:
            data = value.data
            if not isinstance(data, Shared):
                nbytes += len(data)
            elif large is None:
                large = data
            else:
                return None
        return large.lease if large is not None and nbytes <= INLINE_BYTES else None

    def write(self, payload: Payload, offset: int, inline: int = INLINE_BYTES) -> None:
        """Copy the large values to where :meth:`constants` with the same arguments placed them."""
        for value, start in zip(self.values, self._placed(offset, inline), strict=True):
            if start >= 0:
                payload.memory[start:start + len(value.data)] = bytes(value.data)

    def _placed(self, offset: int, inline: int) -> list[int]:
        """Return the offset of each large value; -1 for small ones."""
        if len(self.values) == 1 and len(self.values[0].data) > inline:
            return [aligned(offset)]        # as in most loops
        carried, offsets = 0, [-1] * len(self.values)
        large: list[int] = []
        for slot in sorted(range(len(self.values)), key=lambda each: len(self.values[each].data)):
            carried += len(self.values[slot].data)
            if carried > inline:
                large.append(slot)
        for slot in sorted(large):
            offsets[slot] = aligned(offset)
            offset = offsets[slot] + aligned(len(self.values[slot].data))
        return offsets


def _argument(value: ArrayValue, start: int) -> ArgumentValue:
    """Return the protocol's record of a value that lies at ``start`` of the payload; below 0 it is in the record."""
    data, number = value.data, 0
    if isinstance(data, HeldValue):
        number = data.number
        if not len(data):
            return ArgumentValue(value.dtype, value.shape, b"", -1, number)
    return ArgumentValue(value.dtype, value.shape, b"" if start >= 0 else bytes(data), max(start, 0), number)


class ModuleTable:
    """Table of kernel sources, equal ones under one index. The values of their constants go into the table of slots."""

    def __init__(self, slots: SlotTable):
        self._slots = slots
        self._index: dict[tuple[Kernels, str], int] = {}
        self._modules: list[Module] = []

    def add(self, kernels: Kernels, checks: str = "") -> int:
        """Return the index of a source with assertions appended, added if it is new."""
        if (kernels, checks) not in self._index:
            self._index[kernels, checks] = len(self._modules)
            slots = tuple(self._slots.slot(value) for _, value in kernels.constants)
            names = tuple(name for name, _ in kernels.constants)
            self._modules.append(Module(kernels.source + checks, kernels.file, kernels.options, slots, names))
        return self._index[kernels, checks]

    def modules(self) -> Sequence[Module]:
        """Return the protocol's records, in the order of their indices."""
        return tuple(self._modules)
