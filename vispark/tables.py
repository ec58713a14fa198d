"""The kernel sources and array arguments of one request, each of them once."""

from __future__ import annotations

from gpu_worker.protocol.messages import Constant, Module
from gpu_worker.protocol.payload import Payload, aligned
from vispark.kernels import ArrayValue, Kernels

#: Arrays of at most this many bytes, all together, travel in the message itself.
INLINE_BYTES = 1 << 16


class ConstantTable:
    """Array arguments, equal ones under one index. The smallest travel in the message, the others in the payload.

    Examples
    --------
    >>> import numpy as np
    >>> table = ConstantTable()
    >>> table.add(ArrayValue.of(np.zeros(2), "w")), table.add(ArrayValue.of(np.ones(2), "v"))
    (0, 1)
    >>> table.add(ArrayValue.of(np.zeros(2), "w"))
    0
    """

    def __init__(self) -> None:
        self._index: dict[ArrayValue, int] = {}
        self._placed: dict[ArrayValue, int] = {}

    def add(self, array: ArrayValue) -> int:
        """The index of an array, added if it is new."""
        return self._index.setdefault(array, len(self._index))

    def constants(self, offset: int) -> tuple[tuple[Constant, ...], int]:
        """The protocol's records, and the bytes of the payload from ``offset`` on that the large arrays take."""
        end = self._place(offset)
        records = tuple(Constant(array.dtype, array.shape, b"" if array in self._placed else array.data,
                                 self._placed.get(array, 0)) for array in self._index)
        return records, end - offset

    def write(self, payload: Payload) -> None:
        """Copy the large arrays into a payload, where the last call of :meth:`constants` placed them."""
        for array, start in self._placed.items():
            payload.memory[start:start + len(array.data)] = array.data

    def _place(self, offset: int) -> int:
        """Give the large arrays their offsets; the offset behind the last one."""
        inline, large = 0, set()
        for array in sorted(self._index, key=lambda each: len(each.data)):
            inline += len(array.data)
            if inline > INLINE_BYTES:
                large.add(array)
        self._placed = {}
        for array in self._index:
            if array in large:
                self._placed[array] = aligned(offset)
                offset = self._placed[array] + aligned(len(array.data))
        return offset


class ModuleTable:
    """Kernel sources, equal ones under one index. What their constants hold goes into the table of array arguments."""

    def __init__(self, constants: ConstantTable):
        self._constants = constants
        self._index: dict[Kernels, int] = {}
        self._modules: list[Module] = []

    def add(self, kernels: Kernels) -> int:
        """The index of a source, added if it is new."""
        if kernels not in self._index:
            self._index[kernels] = len(self._modules)
            indices = tuple(self._constants.add(value) for _, value in kernels.constants)
            names = tuple(name for name, _ in kernels.constants)
            self._modules.append(Module(kernels.source, kernels.file, kernels.options, indices, names))
        return self._index[kernels]

    def modules(self) -> tuple[Module, ...]:
        """The protocol's records, in the order of their indices."""
        return tuple(self._modules)
