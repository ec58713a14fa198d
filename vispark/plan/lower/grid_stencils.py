"""Lowering of functions of cells for a grid's fields: launches, written fields, and the exchanges that they need."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_worker.protocol.grids import Halo, Side
from gpu_worker.protocol.messages import Argument, ArrayArgument, Field, Signature, StencilLaunch, ValueArgument
from vispark.data.grid.boundary import boundary_values, number_for
from vispark.data.grid.spec import FUNCTION, NUMBER, GridSpec
from vispark.data.records import RecordLayout
from vispark.errors import Place, PlanError
from vispark.plan.cuda_source import ArrayValue, Kernels
from vispark.plan.loop_call import LoopSpec
from vispark.plan.map_call import MapSpec
from vispark.plan.slots import ArgumentRef, ModuleTable, SlotTable
from vispark.translate import ElementField, StencilKernel, TranslationError, specialise_stencil

_OF_CELLS = ("The records are a grid's blocks, and the function gets the number of one cell; a function that reads "
             "neighbours, as u[0, 1], is decorated with @stencil")

#: Cells below and above along each axis.
CellsReached = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CellMap:
    """Function of a grid's cells, for fields of given dtypes.

    Attributes
    ----------
    spec : MapSpec
        The recorded call; of several in one pass, the first one.
    label : str
        What errors and plans call it.
    kernel : StencilKernel
        What it becomes.
    origins : tuple of (ArgumentRef or None)
        Where each of the kernel's parameters comes from; None for fields and the region.
    settled : frozenset of ArgumentRef
        The Python ints and bools that the kernel has compiled in, or does not need.
    """

    spec: MapSpec
    label: str
    kernel: StencilKernel
    origins: tuple[ArgumentRef | None, ...]
    settled: frozenset[ArgumentRef]

    @classmethod
    def of(cls, spec: MapSpec, signature: Signature, description: GridSpec, position: int,
           before: Sequence[MapSpec] = ()) -> CellMap:
        """Return the function at a position of a chain, with ``before`` phases of the same loop before it.

        Raises
        ------
        TranslationError
            If the types do not go with the function, or it reads beyond the halo.
        PlanError
            If it gives what is no grid's cell.
        """
        try:
            kernel = specialise_stencil(spec.function, cls.fields(signature), spec.values, dims=description.ndim,
                                        halo=tuple((width, width) for width in description.halo))
        except TranslationError as error:
            if spec.function.definition.halo is None:
                error.args = (f"{error.message}\n  {_OF_CELLS}", *error.args[1:])
            raise
        if kernel.structure.kind == "tuple":
            raise PlanError("the new value of a grid's cell is a number, or a dict of fields; a tuple would make its "
                            "block something else: name the fields", Place(operation=spec.label))
        first = {"argument": sum(len(each.arguments) for each in before),
                 "capture": sum(len(each.captured) for each in before)}
        references = {(kind, number): ArgumentRef(position, kind, first[kind] + number)
                      for kind, values in (("argument", spec.arguments), ("capture", spec.captured))
                      for number in range(len(values))}
        origins = tuple(references.get((each.kind, each.number)) for each in kernel.parameters)
        whole = {references[kind, number] for kind, values in (("argument", spec.arguments), ("capture", spec.captured))
                 for number, value in enumerate(values) if value.weak and np.dtype(value.dtype).kind in "bi"}
        return cls(spec, spec.label, kernel, origins, frozenset(whole - set(origins)))

    @staticmethod
    def fields(signature: Signature) -> tuple[ElementField, ...]:
        """Return a signature's fields as the translator takes them."""
        return tuple(ElementField(each.name, each.dtype) for each in signature.fields)

    @property
    def merge(self) -> bool:
        """Whether the result keeps the grid's fields that the function does not compute."""
        return self.kernel.structure.kind == "dict"

    @property
    def reach(self) -> dict[str, CellsReached]:
        """The reach of the reads of each field."""
        return dict(zip(self.kernel.fields, self.kernel.reach, strict=True))

    def after(self, layout: RecordLayout, signature: Signature) -> tuple[RecordLayout, Signature]:
        """Return layout and signature of blocks after this function."""
        shape = signature.fields[0].shape
        outputs = {each.name: Field(each.name, np.dtype(each.dtype).str, shape) for each in self.kernel.outputs}
        merged = {each.name: each for each in signature.fields} if self.merge else {}
        mapped = layout.mapped(tuple((each.name, each.dtype, True, "") for each in self.kernel.outputs), tupled=False,
                               merge=self.merge, pair=False)
        return mapped, Signature(tuple((merged | outputs).values()))

    def launch(self, slots: SlotTable, modules: ModuleTable) -> StencilLaunch:
        """Return the protocol's description of the kernel."""
        kernel = self.kernel
        arguments = tuple(_argument(parameter.pointer, slots.slot(origin))
                          for parameter, origin in zip(kernel.parameters, self.origins, strict=True) if origin)
        below, above = zip(*[(max(0, low), max(0, high)) for low, high in kernel.halo], strict=True)
        return StencilLaunch(modules.add(_generated(kernel.source, kernel.options, self.label)), kernel.name,
                             kernel.fields, tuple(Field(each.name, np.dtype(each.dtype).str, ())
                                                  for each in kernel.outputs),
                             arguments, below, above, kernel.block, kernel.tile, kernel.shared, self.merge,
                             kernel.dealt)


def _argument(pointer: bool, slot: int) -> Argument:
    return ArrayArgument(slot) if pointer else ValueArgument(slot)


@functools.lru_cache(maxsize=512)
def _generated(source: str, options: tuple[str, ...], label: str) -> Kernels:
    return Kernels(source, options, file=f"{label.replace(' ', '-')}.cu")


# -- exchanges --------------------------------------------------------------------------------------------------------

@dataclass
class Ghosts:
    """Tracker of which ghost cells are fresh, and builder of the exchanges that refresh the others.

    Parameters
    ----------
    description : GridSpec
        The grid.
    slots : SlotTable
        Takes the values that functions of the position give outside.
    """

    description: GridSpec
    slots: SlotTable
    fresh: dict[str, CellsReached] = field(default_factory=dict)

    def stale_cells(self, reach: Mapping[str, CellsReached], signature: Signature) -> tuple[Halo, ...]:
        """Return the exchange of ghost cells that are read and not fresh, and mark them as fresh."""
        halos = []
        for name, widths in reach.items():
            have = self.fresh.get(name, ((0, 0),) * self.description.ndim)
            widths = tuple((max(low, known[0]), max(high, known[1]))
                           for (low, high), known in zip(widths, have, strict=True))
            if widths != have:
                self.fresh[name] = widths
                dtype = next(each.dtype for each in signature.fields if each.name == name)
                halos.append(self._halo(name, dtype, widths))
        return tuple(halos)

    def all_fields(self, signature: Signature) -> tuple[Halo, ...]:
        """Return the exchange of all fields, as wide as the halo is."""
        whole = tuple((width, width) for width in self.description.halo)
        return self.stale_cells({each.name: whole for each in signature.fields}, signature)

    def written(self, names: Iterable[str]) -> None:
        """Forget the ghost cells of fields that were computed anew."""
        for name in names:
            self.fresh.pop(name, None)

    def _halo(self, name: str, dtype: str, widths: CellsReached) -> Halo:
        below, above = zip(*widths, strict=True)
        sides = tuple(self._side(name, dtype, side, widths[side // 2][side % 2])
                      for side in range(2 * self.description.ndim))
        return Halo(name, below, above, sides)

    def _side(self, name: str, dtype: str, side: int, width: int) -> Side:
        edge = self.description.edges_of(name)[side]
        zero = bytes(np.dtype(dtype).itemsize)
        if edge.rule == FUNCTION and width:
            values = ArrayValue.of(boundary_values(self.description, name, side, dtype), "a boundary's values")
            return Side("given", zero, self.slots.slot(values))
        if edge.rule == NUMBER and width:
            return Side("given", number_for(edge, dtype, name), -1)
        return Side("given" if edge.rule in (NUMBER, FUNCTION) else edge.rule, zero, -1)


# -- loops ------------------------------------------------------------------------------------------------------------

def loop_maps(spec: LoopSpec, layout: RecordLayout, signature: Signature, description: GridSpec,
              position: int) -> list[tuple[CellMap, Signature]]:
    """Return the phases of a loop, each with the signature of blocks before it.

    Raises
    ------
    PlanError
        If blocks look otherwise after a step than before.
    """
    maps, before = [], signature
    for number, phase in enumerate(spec.phases):
        mapped = CellMap.of(phase, before, description, position, spec.phases[:number])
        maps.append((mapped, before))
        layout, before = mapped.after(layout, before)
    first, last = ({each.name: each.dtype for each in one.fields} for one in (signature, before))
    if first != last:
        name = next(name for name in (*first, *last) if first.get(name) != last.get(name))
        if name and set(first) == {""}:
            raise PlanError(f"a step of the loop gives a dict with {', '.join(repr(each) for each in last if each)}, "
                            "and the grid has no named fields: return the cell's new value itself, or name the fields, "
                            'as in Grid(..., fields={"u": "f4"})', Place(operation=spec.label))
        if name and set(last) == {""}:
            raise PlanError(f"a step of the loop gives one value, and the cells have the fields "
                            f"{', '.join(map(repr, first))}: return a dict with those that are new, as in "
                            f"{{{next(iter(first))!r}: ...}}", Place(operation=spec.label))
        if name not in first:
            mend = "scatter all fields"
        elif name not in last:
            mend = "return a dict of fields"
        else:
            mend = f"convert its result or an argument, as in np.{_shown(first[name])}(...)"
        raise PlanError(f"a step of the loop makes {_shown(last.get(name))} of {_shown(first.get(name))}"
                        f"{f' in field {name!r}' if name else ''}; its fields and their dtypes must be after a step "
                        f"what they were before: {mend}", Place(operation=spec.label))
    return maps


def _shown(dtype: str | None) -> str:
    return "nothing" if dtype is None else str(np.dtype(dtype))
