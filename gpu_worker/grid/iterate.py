"""Loops of exchanges and stencils that do not leave the worker.

A step's operations depend only on which buffers hold what. A loop writes each field in turn into two buffers of its
own, so after a step or two it comes back to where it was, and the operations of an earlier step are done again as they
are: they are worked out, and their tables uploaded, a few times in a loop and not once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpu_worker.device.base import Buffer, Device, Source
from gpu_worker.grid.desk import THREADS, Desk, Operation
from gpu_worker.grid.exchange import Around, Continued, exchange
from gpu_worker.grid.patches import Cells, Domain
from gpu_worker.grid.stencils import launches, region
from gpu_worker.protocol.errors import NotFinite
from gpu_worker.protocol.grids import Halo, Iterate, Iterated, Phase
from gpu_worker.protocol.messages import Field, StencilLaunch

SOURCE = Source((Path(__file__).parent / "checks.cu").read_text(), file="checks.cu")

#: How many steps may be under way on the devices before the worker waits for some.
AHEAD = 64

_NONE = 2**64 - 1
_C_TYPES = {"f4": "float", "f8": "double", "b1": "unsigned char", "i1": "signed char", "i2": "short", "i4": "int",
            "i8": "long long", "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned int",
            "u8": "unsigned long long", "c8": "Complex<float>", "c16": "Complex<double>"}


@dataclass(frozen=True)
class Kernel:
    """A stencil of the plan, with the source it is compiled from."""

    launch: StencilLaunch
    source: Source


@dataclass(frozen=True)
class Program:
    """The operations of a step, and what holds the fields behind it; ``tags`` as for an exchange."""

    operations: list[Operation]
    content: dict[str, Cells]
    tags: dict[Buffer, tuple]


@dataclass
class Stepper:
    """Computes the fields of a domain anew, in memory of its own.

    Parameters
    ----------
    domain : Domain
    content : dict of str to Cells
        The fields to start from, whose memory is only read but for its ghost cells.
    desk : Desk
    around : Around, optional
        The other nodes.
    """

    domain: Domain
    content: dict[str, Cells]
    desk: Desk
    around: Around | None = None
    #: The cells that are our own, of each field.
    owned: dict[str, list[Cells]] = field(default_factory=dict)
    tags: dict[Buffer, tuple] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for cells in self.content.values():
            for buffer in cells.buffers:
                # Should the plan fail, nobody knows what the ghosts hold.
                if buffer.ghosts is not None:
                    self.tags[buffer], buffer.ghosts = buffer.ghosts, None

    def exchange(self, halos: Sequence[Halo]) -> list[Operation]:
        """Fill ghost cells."""
        made = exchange(self.domain, self.content, self._continued(halos), self.desk, self.tags, self.around)
        return [*made.first, *made.beside, *made.after, *made.settled]

    def phase(self, halos: Sequence[Halo], kernel: Kernel, protected: Sequence[Cells] = ()) -> list[Operation]:
        """Fill ghost cells and compute a stencil, whose results are the content then."""
        made = exchange(self.domain, self.content, self._continued(halos), self.desk, self.tags, self.around)
        results = {described.name: self._target(described, protected) for described in kernel.launch.outputs}
        operations = launches(kernel.launch, kernel.source, self.domain, self.content, results, made, self.desk)
        self.content = self.content | results if kernel.launch.merge else results
        return operations

    def _continued(self, halos: Sequence[Halo]) -> list[Continued]:
        return [Continued.of(halo, self.domain, self.content[halo.field], self.desk) for halo in halos]

    def _target(self, described: Field, protected: Sequence[Cells]) -> Cells:
        """Where a field's new values go: memory of ours that has nothing anyone needs."""
        dtype, needed = np.dtype(described.dtype), [*self.content.values(), *protected]
        for cells in self.owned.setdefault(described.name, []):
            if cells.dtype == dtype and not any(cells is other for other in needed):
                return cells
        buffers = tuple(self.desk.allocate(patch.layout.elements * dtype.itemsize, patch.device)
                        for patch in self.domain.patches)
        for buffer in buffers:
            # Memory that held this field before, in an earlier plan, has ghost cells that were filled then.
            if buffer.ghosts is not None:
                self.tags[buffer], buffer.ghosts = buffer.ghosts, None
        self.owned[described.name].append(Cells(dtype, buffers))
        return self.owned[described.name][-1]

    def finish(self) -> dict[str, Cells]:
        """The content, to be held by the caller; the rest of our memory serves others."""
        for buffer, tag in self.tags.items():
            buffer.ghosts = tag
        for cells in self.content.values():
            cells.share()
        for each in self.owned.values():
            for cells in each:
                for buffer in cells.buffers:
                    self.desk.recycle(buffer)
        self.owned.clear()
        self.desk.close()
        return self.content


class Loop:
    """A loop of phases.

    Parameters
    ----------
    step : Iterate
    kernels : mapping of int to Kernel
        The stencils of the plan, by their index.
    stepper : Stepper
        Holds the fields.
    wait : callable
        Waits for all devices, with the marks that tell which kernel is late.
    """

    def __init__(self, step: Iterate, kernels: Mapping[int, Kernel], stepper: Stepper, wait: Callable[[], None]):
        self._step = step
        self._kernels = kernels
        self._stepper = stepper
        self._wait = wait
        self._programs: dict[tuple, Program] = {}
        self._written = tuple(dict.fromkeys(described.name for phase in step.phases
                                            for described in kernels[phase.launch].launch.outputs))

    def run(self) -> Iterated:
        """Do the steps.

        Raises
        ------
        NotFinite
            If a cell that was asked about is NaN or infinite.
        """
        step, change, count, ahead = self._step, -1.0, 0, 0
        while count < step.steps:
            together = step.stride > 1 and self._free(count) >= step.stride
            count += step.stride if together else 1
            number = step.done + count
            compared = not together and step.until >= 0 and number % step.every == 0
            before = dict(self._stepper.content) if compared else {}
            self._advance(before, step.together if together else step.phases)
            ahead += 1
            if compared:
                change, ahead = self._largest_change(before), 0
            elif ahead == AHEAD:
                self._wait()
                ahead = 0
            if step.check > 0 and (number % step.check == 0 or count == step.steps):
                self._check_finite(number)
            if compared and change <= step.until:
                return Iterated(count, change)
        return Iterated(step.steps, change)

    def _free(self, count: int) -> int:
        """How many steps there are after so many before something is asked for in between."""
        step, number = self._step, self._step.done + count
        free = step.steps - count
        if step.until >= 0:
            free = min(free, step.every - 1 - number % step.every)
        return min(free, step.check - number % step.check) if step.check > 0 else free

    def _advance(self, before: Mapping[str, Cells], phases: tuple[Phase, ...]) -> None:
        """Do phases, a step's or those of several; what was ``before`` it stays as it is."""
        stepper = self._stepper
        key = phases, bool(before), tuple((name, *map(id, cells.buffers)) for name, cells in stepper.content.items()), \
            frozenset((id(buffer), tag) for buffer, tag in stepper.tags.items())
        if key not in self._programs:
            operations = []
            for phase in phases:
                operations += stepper.phase(phase.halos, self._kernels[phase.launch], list(before.values()))
            self._programs[key] = Program(operations, dict(stepper.content), dict(stepper.tags))
        program = self._programs[key]
        for operation in program.operations:
            operation()
        stepper.content, stepper.tags = dict(program.content), dict(program.tags)

    def _largest_change(self, before: Mapping[str, Cells]) -> float:
        """The largest change of a cell of the fields that the phases write; infinite where a field is new."""
        stepper, largest = self._stepper, 0.0
        if any(name not in before or before[name].dtype != stepper.content[name].dtype for name in self._written
               if name in stepper.content):
            largest = np.inf
        names = [name for name in self._written if name in stepper.content and name in before]
        found = self._reduced("largest_change", 0, [(before[name], stepper.content[name]) for name in names
                                                    if before[name].dtype == stepper.content[name].dtype])
        changes = [largest, *(float(np.uint64(bits).view(np.float64)) for bits in found)]
        return float("nan") if any(np.isnan(changes)) else max(changes)

    def _check_finite(self, number: int) -> None:
        stepper = self._stepper
        for name, cells in stepper.content.items():
            if cells.dtype.kind in "fc":
                first = min(self._reduced("first_not_finite", _NONE, [(cells,)]), default=_NONE)
                if first != _NONE:
                    raise NotFinite(self._described(name, first, number))

    def _described(self, name: str, first: int, number: int) -> str:
        domain = self._stepper.domain
        cell = tuple(map(int, np.unravel_index(first, domain.lattice.shape)))
        block = domain.lattice.block_of(cell)
        return (f"cell {cell[3 - domain.axes:]} of {name or 'the grid'}, in block {block[3 - domain.axes:]}, "
                f"is NaN or infinite after step {number}")

    def _reduced(self, kernel: str, start: int, fields: Sequence[Sequence[Cells]]) -> list[int]:
        """What a kernel finds in some fields on each device of all nodes."""
        stepper, desk = self._stepper, self._stepper.desk
        results: dict[Device, tuple[Buffer, np.ndarray]] = {}
        for place, patch in enumerate(stepper.domain.patches):
            device, layout = patch.device, patch.layout
            stream = desk.stream(device)
            if device not in results:
                results[device] = desk.scratch.upload(np.array([start], np.uint64), device, stream), \
                    np.empty(1, np.uint64)
            rows = layout.box.shape[0] * layout.box.shape[1]
            for several in fields:
                dtype = several[0].dtype
                addresses = [np.uint64(cells.address(place, layout, layout.box.low)) for cells in several]
                device.launch(device.compile(SOURCE, f"{kernel}<{_C_TYPES[dtype.str[1:]]}>"),
                              (min(rows, 16 * device.multiprocessors),), (THREADS,),
                              [*addresses, region(patch, layout.box, stepper.domain.lattice.shape), results[device][0]],
                              stream=stream)
        for device, (buffer, found) in results.items():
            device.copy_out(found.view(np.uint8), buffer, stream=desk.stream(device))
        self._wait()
        for buffer, _ in results.values():
            desk.recycle(buffer)
        here = np.array([found[0] for _, found in results.values()], np.uint64)
        if stepper.around is None:
            return here.tolist()
        everywhere = stepper.around.world.gather(here.tobytes(), stepper.around.deadline)
        return [found for said in everywhere for found in np.frombuffer(said, np.uint64).tolist()]
