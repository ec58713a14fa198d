"""Writer of the function of one cell: a Python function specialised on the dtypes of a grid's fields."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vispark.translate.codegen.dispatch import expression
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.frame import Returns
from vispark.translate.codegen.library import emitter
from vispark.translate.codegen.operands import as_number, static
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.scalar.interface import ElementField, KernelOutput, KernelParameter, ResultStructure
from vispark.translate.codegen.scalar.prelude import prelude_for
from vispark.translate.codegen.scalar.reciprocals import COMMON_QUOTIENT
from vispark.translate.codegen.syntax.expressions import lower_literal
from vispark.translate.codegen.syntax.functions import result_type, run
from vispark.translate.codegen.syntax.subscripts import lower_index
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant, Definition
from vispark.translate.ir.types import C_TYPES, INT, Scalar, scalar_of
from vispark.translate.ir.values import (
    ArrayType,
    Dict,
    DictType,
    LocalFunction,
    Named,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    given_number,
    shown,
    stored,
)
from vispark.translate.language.stencil import COMPUTED, HaloWidths
from vispark.translate.stencils.frame import Cell, FieldRead, Offset, Write, offset_name

#: What the frames call their own variables.
_WORDS = """region x y z r l row at at_x first last lane next planes along across corner left right top end place
inside whole alive s t turn now before other shared warp warp_above warp_below written alive_x alive_row bottom base
start edges row_2 rows_within ends_within rim_rows rim_ends rows_before rows_behind ends_before ends_behind
width height below above lower middle upper deep mask done from to row_0 row_1 kept Edges Planes edge vp_region vp_load
vp_store vp_lanes vp_move vp_pick vp_wrapped exact sure again_from again_to base_at"""

#: What may not run for cells that nobody wants: it may go on for long, or end with a fault.
_PARTIAL = re.compile(r"\bwhile \(|checked_index|__trap|\bfor \((?!int \w+ = \d+; \w+ < \d+;)")


@dataclass(frozen=True)
class Neighbourhood(Named):
    """A field in a stencil, of which only offsets are read."""

    field: ElementField


@dataclass(frozen=True)
class Made:
    """Translation of a function of a cell, with its inputs and outputs.

    ``parameters`` are those after the region, in order; ``halo`` is how far it reads along the grid's axes; ``dtypes``
    are those of the fields that it reads.
    """

    cell: Cell
    outputs: tuple[KernelOutput, ...]
    structure: ResultStructure
    parameters: tuple[KernelParameter, ...]
    halo: HaloWidths
    dtypes: tuple[tuple[str, str], ...]


class CellWriter:
    """Writer of one function of a cell.

    Parameters
    ----------
    halo : tuple of (int, int) or None
        How far the grid lets it read along each axis.
    constants : mapping
        Arguments and captures by ("argument" or "capture", number), in order.
    statics : mapping
        Those of them that are compiled in.
    """

    def __init__(self, definition: Definition, fields: tuple[ElementField, ...], dims: int, halo: HaloWidths | None,
                 names: tuple[str, ...], constants: Mapping[tuple[str, int], Constant],
                 statics: Mapping[tuple[str, int], Any]):
        self.definition, self.fields, self.dims, self.halo, self.statics = definition, fields, dims, halo, statics
        self.emit = emitter(definition)
        self.emit.taken |= set(_WORDS.split())
        self.emit.lowerings = {nodes.Literal: self._literal, nodes.Index: self._index,
                               **{f"grid.{short}": functools.partial(self._position, short=short)
                                  for short in ("coordinate", "extent")}}
        self.title = self.emit.name(f"{definition.name}_cell")
        self.reads: dict[tuple[str, Offset], str] = {}
        self.locals: dict[str, str] = {}
        self.places: dict[tuple[str, int], str] = {}
        self.given: dict[str, tuple[str, KernelParameter]] = {}
        self.emit.captures = tuple(self._value(("capture", i), name, constants["capture", i])
                                   for i, name in enumerate(names))
        self.arguments = {place: value for place, value in constants.items() if place[0] == "argument"}

    def write(self) -> Made:
        """Return the function, and what a kernel around it takes and gives."""
        variables = self._variables()
        kind = result_type(self.emit, self.definition, variables, None)
        if isinstance(kind, Nothing):
            raise Refusal(f"{self.definition.name} returns nothing; a function of a cell returns the cell's new value")
        outputs: list[KernelOutput] = []
        structure = self._structure(kind, "", outputs)
        writes = tuple(self._write_of(output) for output in outputs)
        with self.emit.detached(1) as lines:
            run(self.emit, self.definition, variables, None,
                Returns(lambda value: self._store(structure, writes, value, kind)))
        return self._cell(lines.lines, tuple(outputs), structure, writes)

    # -- what comes in ------------------------------------------------------------------------------------------------

    def _value(self, place: tuple[str, int], wanted: str, value: Constant) -> Value:
        if place in self.statics:
            return replace(literal(self.statics[place]), common=True)
        name, kind = self.emit.name(wanted.replace(".", "_")), Scalar(scalar_of(value.dtype, wanted).dtype, value.weak)
        pointer = bool(value.shape)
        declared = f"const {kind.c}* __restrict__ {name}" if pointer else f"const {kind.c} {name}"
        self.given[name] = declared, KernelParameter(place[0], "", place[1], kind.dtype, value.shape, pointer)
        if pointer:
            return stored(name, kind, value.shape)
        return replace(given_number(kind, name, place, wanted), common=True)

    def _literal(self, emit: Emitter, node: nodes.Literal) -> Value:
        value = lower_literal(emit, node)
        return replace(value, common=True) if isinstance(value, Number) else value

    def _variables(self) -> dict[str, Value]:
        """Return the parameters' values: fields by name, then arguments in order, then defaults."""
        positional = [parameter for parameter in self.definition.parameters if not parameter.keyword_only]
        if not positional:
            raise Refusal(f"{self.definition.name} has no parameter for the cell")
        names = {parameter.name for parameter in self.definition.parameters}
        variables: dict[str, Value] = {}
        for field in self.fields:
            if not field.name or field.name in names:
                variables[field.name or positional[0].name] = self._input(field.name or positional[0].name, field)
        field_names = ", ".join(field.name for field in self.fields)
        if not variables:
            raise Refusal(f"no parameter of {self.definition.name} is named after a field; the grid's fields are "
                          f"{field_names}")
        others = [parameter for parameter in positional if parameter.name not in variables]
        if len(self.arguments) > len(others):
            raise Refusal(f"{self.definition.name} takes {len(others)} arguments beside the grid's fields, and "
                          f"{len(self.arguments)} are given")
        for parameter, (place, value) in zip(others, self.arguments.items(), strict=False):
            variables[parameter.name] = self._value(place, parameter.name, value)
        for parameter in self.definition.parameters:
            if parameter.name not in variables:
                if parameter.default is None:
                    raise Refusal(f"no value is given for the parameter {parameter.name} of {self.definition.name}"
                                  + (f"; the grid's fields are {field_names}" if field_names else ""))
                variables[parameter.name] = expression(self.emit, parameter.default)
        return variables

    def _input(self, wanted: str, field: ElementField) -> Value:
        if field.shape:
            raise Refusal(f"the field {field.name or wanted} has rows {field.shape} as its cells; a grid's cell is one "
                          "number for each field")
        self.locals[field.name] = local = self.emit.name(wanted)
        self.emit.taken |= {f"{local}_in", f"{local}_new"}
        if self.definition.halo is None:
            return self._neighbour(field, (0,) * self.dims)
        example = ", ".join("0" * self.dims)
        return Neighbourhood(f"the field {wanted} itself (a stencil reads cells of it, as in {wanted}[{example}])",
                             field)

    def _neighbour(self, field: ElementField, offset: tuple[int, ...]) -> Number:
        """Return the cell of a field at an offset."""
        kind = scalar_of(field.dtype, f"the field {field.name}" if field.name else "the grid")
        z, y, x = (0,) * (3 - self.dims) + offset
        key = field.name, (z, y, x)
        if key not in self.reads:
            local = self.locals[field.name]
            self.reads[key] = local if self.definition.halo is None else \
                self.emit.lasting(offset_name(local, key[1], self.dims))
        return Number(kind, self.reads[key])

    def _index(self, emit: Emitter, node: nodes.Index) -> Value:
        value = expression(self.emit, node.value)
        if not isinstance(value, Neighbourhood):
            return lower_index(emit, node)
        offset = tuple(index.value for index in node.indices
                       if isinstance(index, nodes.Literal) and type(index.value) is int)
        if len(offset) != len(node.indices):
            raise Refusal(COMPUTED)
        if len(offset) != self.dims:
            raise Refusal(f"the grid has {self.dims} axes, and {len(offset)} offsets are given")
        for axis, step in enumerate(offset):
            if self.halo is not None and not -self.halo[axis][0] <= step <= self.halo[axis][1]:
                away = "1 cell" if abs(step) == 1 else f"{abs(step)} cells"
                raise Refusal(f"this reads {away} away along axis {axis}, and the grid's halo is "
                              f"{self.halo[axis][step > 0]} there; make the Grid with halo={abs(step)}")
        return self._neighbour(value.field, offset)

    def _position(self, emit: Emitter, axis: Value, *, short: str) -> Value:
        """Return the cell's place along an axis of the grid, or the grid's cells along it."""
        number = static(as_number(axis, "an axis"), "an axis must be known before the kernel runs")
        if not -self.dims <= number < self.dims:
            raise Refusal(f"the grid has {self.dims} axes, and no axis {number}")
        key = short, 3 - self.dims + number % self.dims
        if key not in self.places:
            self.places[key] = self.emit.lasting(f"{short}_{number % self.dims}")
        return Number(INT, self.places[key], common=short == "extent")

    # -- what goes out ------------------------------------------------------------------------------------------------

    def _structure(self, kind: Type, path: str, outputs: list[KernelOutput]) -> ResultStructure:
        if isinstance(kind, DictType) and not path:
            if any(isinstance(item, tuple | DictType) for item in kind.items):
                raise Refusal("a field's new value is a number")
            items = tuple(self._structure(item, name, outputs)
                          for name, item in zip(kind.names, kind.items, strict=True))
            return ResultStructure("dict", items=items, names=kind.names)
        if isinstance(kind, tuple) and kind:
            return ResultStructure("tuple", items=tuple(self._structure(item, f"{path}.{i}".lstrip("."), outputs)
                                                        for i, item in enumerate(kind)))
        if not isinstance(kind, Scalar):
            what = shown(kind) if isinstance(kind, ArrayType | Nothing) else "an empty tuple or a dict in a result"
            raise Refusal(f"a cell's new value is a number, a tuple of numbers or a dict of fields, and this is {what}")
        number = {"bool": "bool", "int64": "int", "float64": "float", "complex128": "complex"}[kind.dtype] \
            if kind.weak else ""
        outputs.append(KernelOutput(path, kind.dtype, (), number))
        return ResultStructure("value", len(outputs) - 1)

    def _write_of(self, output: KernelOutput) -> Write:
        kind = Scalar(output.dtype)
        name = self.emit.name(f"out_{output.name}" if output.name else "out")
        self.emit.taken |= {f"{name}_new", f"{name}_to"}
        return Write(output.name, name, kind.c, kind.numpy.itemsize)

    def _store(self, structure: ResultStructure, writes: tuple[Write, ...], value: Any, kind: Any) -> None:
        if isinstance(value, Tuple | Dict):
            kinds = kind.items if isinstance(kind, DictType) else kind
            for item, part, inner in zip(structure.items, value.items, kinds, strict=True):
                self._store(item, writes, part, inner)
            return
        if isinstance(value, LocalFunction):
            raise Refusal("a function cannot be a result")
        target = next(write for number, write in enumerate(writes) if number == structure.output)
        self.emit.line(f"{target.name} = {cast(cast(as_number(value), kind), _type_of(target)).text};")

    # -- the function -------------------------------------------------------------------------------------------------

    def _cell(self, lines: list[str], outputs: tuple[KernelOutput, ...], structure: ResultStructure,
              writes: tuple[Write, ...]) -> Made:
        words = set(re.findall(r"\w+", "\n".join(lines)))
        self.reads = {key: name for key, name in self.reads.items() if name in words}
        reads = tuple(read for read in map(self._read_of, self.fields) if read.offsets)
        captured = {name: one for name, one in self.given.items() if name in words}
        places = {key: name for key, name in self.places.items() if name in words}
        signature = [f"{write.c}& {write.name}" for write in writes]
        signature += [f"const {read.c} {self.reads[read.field, offset]}" for read in reads for offset in read.offsets]
        coordinates = sorted(axis for short, axis in places if short == "coordinate")
        extents = sorted(axis for short, axis in places if short == "extent")
        signature += [f"const long long {places['coordinate', axis]}" for axis in coordinates]
        signature += [f"const long long {places['extent', axis]}" for axis in extents]
        signature += [declared for declared, _ in captured.values()]
        divides = any(COMMON_QUOTIENT in line for line in lines)
        head = f"static __device__ __forceinline__ void {self.title}({', '.join(signature)})"
        if divides:
            head = f"template <bool exact> {head[:-1]}, bool& sure)"
        body = "\n".join([*textwrap.wrap(head, 116, subsequent_indent="    "), "{", *lines, "}"]) + "\n"
        helpers = prelude_for(body)
        text = (helpers + "\n" if helpers else "") + body
        cell = Cell(self.title, text, self.dims, reads, writes, tuple(coordinates), tuple(extents),
                    tuple((declared, name) for name, (declared, _) in captured.items()), not _PARTIAL.search(body),
                    divides)
        parameters = tuple(parameter for _, parameter in captured.values())
        dtypes = tuple((field.name, np.dtype(field.dtype).newbyteorder("=").name) for field in self.fields)
        return Made(cell, outputs, structure, parameters, self._halo(reads), dtypes)

    def _read_of(self, field: ElementField) -> FieldRead:
        kind = scalar_of(field.dtype, f"the field {field.name}")
        offsets = tuple(offset for name, offset in self.reads if name == field.name)
        return FieldRead(field.name, self.locals.get(field.name, ""), kind.c, kind.numpy.itemsize, offsets)

    def _halo(self, reads: tuple[FieldRead, ...]) -> HaloWidths:
        reach = [[read.reach(axis) for read in reads] or [(0, 0)] for axis in range(3 - self.dims, 3)]
        return tuple((max(-low for low, _ in one), max(high for _, high in one)) for one in reach)


def _type_of(write: Write) -> Scalar:
    """Return the type of an output, from its C++ type."""
    return next(Scalar(dtype) for dtype, c in C_TYPES.items() if c == write.c)
