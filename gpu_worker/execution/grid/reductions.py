"""Reductions over the cells of a domain on the devices: finiteness and the largest change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Source
from gpu_worker.device.memory.grid.boxes import Box
from gpu_worker.device.memory.grid.patches import Cells, Domain
from gpu_worker.exchange.base import JoinedWorld
from gpu_worker.execution.grid.context import THREADS, GridContext, Operation
from gpu_worker.execution.grid.stencils import region

SOURCE = Source((Path(__file__).parent / "checks.cu").read_text(), file="checks.cu")

#: What is found first of cells that are not finite where all are.
ALL_FINITE = 2**64 - 1

_WORD = np.dtype(np.uint64).itemsize
_C_TYPES = {"f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
            "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int",
            "u8": "unsigned long long", "c8": "Complex<float>", "c16": "Complex<double>"}


@dataclass(frozen=True)
class Reduction:
    """Reduction of some fields to one number by a kernel, from ``start`` on."""

    kernel: str
    start: int
    fields: tuple[tuple[Cells, ...], ...]

    @classmethod
    def change(cls, fields: Sequence[tuple[Cells, Cells]]) -> Reduction:
        """Return the reduction to the largest change of a cell, as the bits of a double, from the first to the second
        of each pair.
        """
        return cls("largest_change", 0, tuple(fields))

    @classmethod
    def finite(cls, cells: Cells) -> Reduction:
        """Return the reduction to the first cell that is not finite, in the order of the grid."""
        return cls("first_not_finite", ALL_FINITE, ((cells,),))


class Reading:
    """Operations that run reductions and copy out their results.

    Parameters
    ----------
    questions : sequence of Reduction
    domain : Domain
        Of whose cells they are.
    context : GridContext
    only : Box, optional
        The cells that they are of, if not of all.
    """

    def __init__(self, questions: Sequence[Reduction], domain: Domain, context: GridContext, only: Box | None = None):
        self.operations: list[Operation] = []
        self._found: list[np.ndarray] = []
        starts = np.array([question.start for question in questions], np.uint64)
        for device in dict.fromkeys(patch.device for patch in domain.patches):
            stream = context.stream(device)
            first, results = (context.upload(starts, device, stream) for _ in range(2))
            host = context.scratch.host(starts.nbytes, device)
            self.operations.append(partial(device.copy_across, results, first, stream=stream))
            for place, patch in enumerate(domain.patches):
                box = patch.layout.box if only is None else patch.layout.box.shared(only)
                if patch.device is device and box.size:
                    for number, question in enumerate(questions):
                        address = np.uint64(results.address + number * _WORD)
                        self.operations += _launches(question, domain, place, box, address, context)
            self.operations.append(partial(device.copy_out, host, results, stream=stream))
            self._found.append(host.view(np.uint64))

    def answers(self, world: JoinedWorld | None) -> list[np.ndarray]:
        """Return the results of the reductions on each device of all nodes, once the operations are done; one number
        for each reduction.
        """
        if world is None:
            return self._found
        gathered = world.gather(b"".join(found.tobytes() for found in self._found))
        count = len(self._found[0])
        return [found for each in gathered for found in np.frombuffer(each, np.uint64).reshape(-1, count)]


def _launches(question: Reduction, domain: Domain, place: int, box: Box, result: np.uint64,
              context: GridContext) -> list[Operation]:
    """Return the launches on a box of a patch's cells."""
    device, layout = domain.patches[place].device, domain.patches[place].layout
    rows = box.shape[0] * box.shape[1]
    described = region(domain.patches[place], box, domain.lattice.shape)
    operations: list[Operation] = []
    for several in question.fields:
        addresses = [np.uint64(cells.address(place, layout, layout.box.low)) for cells in several]
        kernel = device.compile(SOURCE, f"{question.kernel}<{_C_TYPES[several[0].dtype.str[1:]]}>")
        operations.append(partial(device.launch, kernel, (min(rows, 16 * device.multiprocessors),), (THREADS,),
                                  [*addresses, described, result], stream=context.stream(device)))
    return operations
