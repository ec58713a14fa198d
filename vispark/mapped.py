"""What one call of ``vmap`` recorded, and what it means for blocks of one signature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpu_worker.protocol.messages import Argument, Array, Field, In, Launch, Out, Scalar, Signature
from vispark.errors import LaunchError, Place
from vispark.kernels import ArrayValue, Kernels
from vispark.records import Layout
from vispark.tables import ConstantTable, ModuleTable
from vispark.translate import Field as ElementField
from vispark.translate import Function, Kernel, Parameter, Record, specialise
from vispark.translate.form import Constant, Definition
from vispark.translate.reader import trace_call


class MapShape(NamedTuple):
    """What a recorded call is apart from the values that it captured and was given: (dtype, shape, weak) of each."""

    definition: Definition
    captures: tuple[tuple[str, tuple[int, ...], bool], ...]
    arguments: tuple[tuple[str, tuple[int, ...], bool], ...]


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
    def values(self) -> tuple[Any, ...]:
        """The arguments as numbers and arrays."""
        return tuple(each.array if each.shape else each.number for each in self.arguments)


def record_map(function: Callable[..., Any], arguments: tuple[Any, ...]) -> MapSpec:
    """Record a call.

    Raises
    ------
    TranslationError
        If the function has what the language lacks, at its line.
    """
    traced, values = trace_call(function, arguments)
    return MapSpec(traced, values, f"vmap {traced.definition.name}")


def resolve_map(spec: MapSpec, layout: Layout, signature: Signature, constants: ConstantTable,
                modules: ModuleTable) -> tuple[Launch, Signature, Layout]:
    """What a call means for blocks of one layout and signature: the launch, and what the result looks like.

    Raises
    ------
    TranslationError
        If the types of the data do not go with the function.
    LaunchError
        If the block's fields differ in their leading extent.
    """
    count = _leading(spec, signature)
    kernel = specialise(spec.function, _record(layout.kind, signature), spec.values)
    pair = kernel.structure.kind == "tuple" and len(kernel.structure.items) == 2
    outputs = tuple(Field(each.name, np.dtype(each.dtype).str, (count, *each.shape)) for each in kernel.outputs)
    merge = kernel.structure.kind == "dict"
    values = iter(kernel.values(spec.function, spec.values))
    arguments = tuple(_argument(parameter, values, count, constants) for parameter in kernel.parameters)
    grid = (kernel.grid(count),) if count else ()
    launch = Launch(grid, (kernel.block,), 0, arguments, outputs, merge, modules.add(_generated(kernel, spec.label)),
                    kernel.name, layout.keyed and pair)
    fields = {each.name: each for each in signature.fields} if merge else {}
    after = Signature(tuple((fields | {each.name: each for each in outputs}).values()))
    return launch, after, layout.mapped(tuple((each.name, each.dtype, bool(each.shape), each.number)
                                              for each in kernel.outputs),
                                        tupled=kernel.structure.kind == "tuple", merge=merge, pair=pair)


def _leading(spec: MapSpec, signature: Signature) -> int:
    extents = {each.shape[:1] for each in signature.fields}
    if len(extents) > 1 or () in extents:
        shapes = ", ".join(f"{each.name} {each.shape}" for each in signature.fields)
        raise LaunchError(f"vmap goes along the leading axis, which must be the same for all fields, not {shapes}",
                          Place(operation=spec.label))
    return extents.pop()[0]


def _record(kind: str, signature: Signature) -> Record:
    return Record(tuple(ElementField(each.name, each.dtype, each.shape[1:]) for each in signature.fields), kind)


def _argument(parameter: Parameter, values, count: int, constants: ConstantTable) -> Argument:
    match parameter.kind:
        case "input":
            return In(parameter.name)
        case "output":
            return Out(parameter.name)
        case "count":
            return Scalar("<i8", np.int64(count).tobytes())
    value = next(values)
    if parameter.pointer:
        return Array(constants.add(ArrayValue.of(value, "an argument")))
    return Scalar(value.dtype.str, value.tobytes())


@functools.lru_cache(maxsize=512)
def _generated(kernel: Kernel, label: str) -> Kernels:
    return Kernels(kernel.source, file=f"{label.replace(' ', '-')}.cu")
