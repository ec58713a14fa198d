"""What one call of ``vmap`` recorded, and what it means for blocks of one signature."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpu_worker.protocol.filled import filled
from gpu_worker.protocol.messages import (
    Argument,
    Array,
    Field,
    In,
    Launch,
    Out,
    Partial,
    Preparation,
    Signature,
    Value,
)
from vispark.errors import LaunchError, Place
from vispark.kernels import ArrayValue, Kernels
from vispark.records import Layout
from vispark.tables import Given, ModuleTable, SlotTable
from vispark.translate import Field as ElementField
from vispark.translate import Function, Parameter, Record, indexing
from vispark.translate.errors import TranslationError
from vispark.translate.folding import Folding
from vispark.translate.form import Constant, Definition
from vispark.translate.fusion import fuse
from vispark.translate.interface import ROOM, TableKernel
from vispark.translate.interface import Call as FusedCall
from vispark.translate.matrix_kernel import why_by_rows
from vispark.translate.reader import trace_call
from vispark.translate.text import at_definition


class MapShape(NamedTuple):
    """What a recorded call is apart from the values that it captured and was given: (dtype, shape, weak) of each."""

    definition: Definition
    captures: tuple[tuple[str, tuple[int, ...], bool], ...]
    arguments: tuple[tuple[str, tuple[int, ...], bool], ...]


@filled
@dataclass(frozen=True)
class MapSpec:
    """One recorded call of ``vmap``; hashable, equal by content.

    Attributes
    ----------
    function : Function
        What the user's function does, without dtypes.
    arguments : tuple of Constant
        The arguments beside the element, by value.
    label : str
        What errors and plans call it, such as "vmap gradient".
    """

    function: Function
    arguments: tuple[Constant, ...]
    label: str

    def shape_key(self) -> MapShape:
        """The same without values: of captures and arguments only the types, which the kernel is made for."""
        captures = [each.value for each in self.function.captures]
        return MapShape(self.function.definition, tuple([(each.dtype, each.shape, each.weak) for each in captures]),
                        tuple([(each.dtype, each.shape, each.weak) for each in self.arguments]))

    @property
    def captured(self) -> tuple[Constant, ...]:
        """What the function took from around it, by value."""
        return tuple([capture.value for capture in self.function.captures])

    def value(self, origin: Given) -> ArrayValue:
        """An argument or a capture."""
        found = self.arguments[origin.number] if origin.kind == "argument" else \
            self.function.captures[origin.number].value
        return ArrayValue(found.dtype, found.shape, found.data)

    @property
    def values(self) -> tuple[Any, ...]:
        """The arguments as numbers and arrays."""
        return tuple(each.array if each.shape else each.number for each in self.arguments)


def record_map(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any] | None = None
               ) -> MapSpec:
    """Record a call.

    Raises
    ------
    TranslationError
        If the function has what the language lacks, at its line; if arguments are ``named``.
    """
    traced, values = trace_call(function, arguments)
    if named:
        raise at_definition(traced.definition, f"vmap gives arguments by their place, and not {next(iter(named))}=; "
                                               f"write vmap({traced.definition.name}, value, ...)")
    label = f"vmap {traced.definition.name}"
    indexing.remember(label, traced.definition)
    return MapSpec(traced, values, label)


@dataclass(frozen=True)
class Mapped:
    """Calls of ``vmap`` for blocks of one signature, in one kernel.

    Attributes
    ----------
    kernel : TableKernel
        Its source, and how it is launched.
    settled : frozenset of Given
        The Python ints, bools and infinities whose values the kernel has compiled in, or does not need.
    """

    kernel: TableKernel
    settled: frozenset[Given]


Call = tuple[int, MapSpec]


def resolve_maps(calls: Sequence[Call], layout: Layout, signature: Signature, *, wanted: frozenset[str] | None = None,
                 folding: Folding | None = None, room: int = ROOM) -> Mapped:
    """What calls, each with its position in the chain, mean for blocks of one layout and signature.

    Parameters
    ----------
    wanted : frozenset of str, optional
        The outputs to compute; all if left out.
    folding : Folding, optional
        What the results are folded into.
    room : int
        The bytes of shared memory that a thread block can have where it runs.

    Raises
    ------
    TranslationError
        If the types of the data do not go with the functions.
    LaunchError
        If the block's fields differ in their leading extent.
    """
    leading(calls[0][1], signature)
    try:
        kernel = fuse([FusedCall(spec.function, spec.values) for _, spec in calls], _record(layout.kind, signature),
                      wanted=wanted, folding=folding, room=room)
    except TranslationError as error:
        if layout.keyed:
            error.args = (f"{error.message}\n  The records are pairs: as with mapValues, the function gets the value, "
                          "and the key stays beside what it gives", *error.args[1:])
        raise
    passed = {origin for origin in _origins(kernel, calls) if origin is not None}
    whole = {Given(position, kind, number) for position, spec in calls
             for kind, values in (("argument", spec.arguments), ("capture", spec.captured))
             for number, value in enumerate(values) if value.weak and (
                 np.dtype(value.dtype).kind in "bi" or (not value.shape and value.number in (math.inf, -math.inf)))}
    return Mapped(kernel, frozenset(whole - passed))


def launch_of(mapped: Mapped, calls: Sequence[Call], outputs: Sequence[Field], slots: SlotTable, modules: ModuleTable,
              *, keyless: bool = False, names: Mapping[str, str] | None = None) -> Launch:
    """The protocol's description of a kernel.

    Parameters
    ----------
    outputs : sequence of Field
        What it leaves of a block.
    keyless : bool
        Whether what it gives has keys of its own.
    names : mapping, optional
        What outputs are called in ``outputs``, where that is not what the kernel calls them.
    """
    kernel, label = mapped.kernel, label_of(calls)
    arguments = tuple([_argument(parameter, origin, slots, names or {})
                       for parameter, origin in zip(kernel.parameters, _origins(kernel, calls), strict=True)])
    partials = tuple([Partial(each.field, each.operator, each.accumulator, each.width, each.guard)
                      for each in kernel.accumulated])
    return Launch((), (kernel.block,), kernel.shared, arguments, tuple(outputs), kernel.merge and not partials,
                  modules.add(_generated(kernel.source, label)), kernel.name, keyless, kernel.tile, kernel.waves,
                  partials, _preparation(kernel), kernel.cluster)


def _preparation(kernel: TableKernel) -> Preparation | None:
    first = kernel.preparation
    return Preparation(first.name, first.nbytes, (first.grid,), (first.block,)) if first else None


def label_of(calls: Sequence[Call]) -> str:
    """What errors call the step that does some calls."""
    return ", ".join(spec.label for _, spec in calls)


def after_map(kernel: TableKernel, layout: Layout, signature: Signature) -> tuple[Signature, Layout]:
    """What blocks, and their layout, become by one call."""
    count = signature.fields[0].shape[0]
    outputs = tuple(Field(each.name, np.dtype(each.dtype).str, (count, *each.shape)) for each in kernel.outputs)
    fields = {each.name: each for each in signature.fields} if kernel.merge else {}
    after = Signature(tuple((fields | {each.name: each for each in outputs}).values()))
    mapped = layout.mapped(tuple((each.name, each.dtype, bool(each.shape), each.number) for each in kernel.outputs),
                           tupled=kernel.structure.kind == "tuple", merge=kernel.merge, pair=is_pair(kernel))
    return after, mapped


def remark(spec: MapSpec, layout: Layout, signature: Signature, room: int) -> str:
    """Why the nearest centres that a call gives are no matrix work; empty if it gives none."""
    return why_by_rows(FusedCall(spec.function, spec.values), _record(layout.kind, signature), room)


def is_pair(kernel: TableKernel) -> bool:
    """Whether a function gives pairs, which have keys of their own."""
    return kernel.structure.kind == "tuple" and len(kernel.structure.items) == 2


def leading(spec: MapSpec, signature: Signature) -> int:
    """The extent of the axis that a call goes along.

    Raises
    ------
    LaunchError
        If the fields differ in it.
    """
    extents = {each.shape[:1] for each in signature.fields}
    if len(extents) > 1 or () in extents:
        shapes = ", ".join(f"{each.name} {each.shape}" for each in signature.fields)
        raise LaunchError(f"vmap goes along the leading axis, which must be the same for all fields, not {shapes}",
                          Place(operation=spec.label))
    return extents.pop()[0]


def _record(kind: str, signature: Signature) -> Record:
    return Record(tuple(ElementField(each.name, each.dtype, each.shape[1:]) for each in signature.fields), kind)


def _origins(kernel: TableKernel, calls: Sequence[Call]) -> list[Given | None]:
    """Where each parameter's value comes from; the kernel numbers those of all calls one behind the other."""
    every = {"argument": [Given(position, "argument", number) for position, spec in calls
                          for number in range(len(spec.arguments))],
             "capture": [Given(position, "capture", number) for position, spec in calls
                         for number in range(len(spec.captured))]}
    return [every[parameter.kind][parameter.number] if parameter.kind in every else None
            for parameter in kernel.parameters]


def _argument(parameter: Parameter, origin: Given | None, slots: SlotTable, names: Mapping[str, str]) -> Argument:
    if origin is None:
        name = names.get(parameter.name, parameter.name)
        return In(parameter.name) if parameter.kind == "input" else Out(name)
    return Array(slots.slot(origin)) if parameter.pointer else Value(slots.slot(origin))


@functools.lru_cache(maxsize=512)
def _generated(source: str, label: str) -> Kernels:
    return Kernels(source, file=f"{label.replace(', ', '-then-').replace(' ', '-')}.cu")
