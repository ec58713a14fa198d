"""Specialises a traced function on dtypes and lengths: the intermediate form becomes a CUDA kernel."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vispark.translate import form
from vispark.translate.calls import Calls, Returns
from vispark.translate.capture import constant
from vispark.translate.errors import Refusal, TranslationError
from vispark.translate.expressions import Frame
from vispark.translate.form import Constant, Definition, Function
from vispark.translate.fusion import fuse
from vispark.translate.interface import Call, Field, Output, Parameter, Record, Structure
from vispark.translate.layout import Layout, Port, assemble
from vispark.translate.reader import trace
from vispark.translate.scalars import NeedsStatic, cast, literal
from vispark.translate.text import complain
from vispark.translate.types import INT, Scalar, scalar_of
from vispark.translate.values import (
    Array,
    ArrayType,
    Dict,
    DictType,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    shown,
    stored,
)


@dataclass(frozen=True)
class Kernel:
    """A kernel's source, and how it is launched.

    Attributes
    ----------
    source : str
        CUDA C++, for NVRTC and for the host device.
    name : str
        The ``extern "C"`` function in it.
    outputs : tuple of Output
        The arrays that it writes, each with the number of elements as its first extent.
    structure : Structure
        How the function's result is built of them.
    parameters : tuple of Parameter
        What it takes, in order. Fields, arguments and captures that the function does not read are left out.
    block : int
        Threads in a block.
    """

    source: str
    name: str
    outputs: tuple[Output, ...]
    structure: Structure
    parameters: tuple[Parameter, ...]
    block: int

    def grid(self, count: int) -> int:
        """The number of blocks for a number of elements."""
        return max(1, -(-count // self.block))

    def values(self, function: Function, args: Sequence[Any]) -> tuple[np.ndarray | np.generic, ...]:
        """What to pass for the parameters of kind "argument" and "capture", in the parameters' order."""
        found = []
        for parameter in self.parameters:
            if parameter.kind in ("argument", "capture"):
                value = function.captures[parameter.number].value if parameter.kind == "capture" else \
                    constant(args[parameter.number], f"argument {parameter.number + 1}")
                found.append(value.array if parameter.pointer else value.array[()])
        return tuple(found)


def specialise(function: Function, record: Record, args: Sequence[Any] = ()) -> Kernel:
    """The kernel of a traced function for elements and arguments of given dtypes and shapes.

    Parameters
    ----------
    function : Function
        What :func:`trace` gave.
    record : Record
        What one element is.
    args : sequence
        The arguments, numbers and arrays. Their values count only where a Python int shapes the code, as in
        ``np.zeros(k)``.

    Returns
    -------
    Kernel
        Equal for equal types, whatever the values are.

    Raises
    ------
    TranslationError
        If the types do not go together; at the user's line.
    """
    definition = function.definition
    if definition.halo is not None:
        raise _at_definition(definition, "a stencil needs a Grid: its neighbours are other cells")
    values = {("capture", i): capture.value for i, capture in enumerate(function.captures)}
    values |= {("argument", i): _described(definition, arg, i) for i, arg in enumerate(args)}
    statics = {place: value.number for place, value in values.items()
               if not value.shape and value.weak and np.dtype(value.dtype) == np.bool_}
    given = tuple((place, _Given.of(value)) for place, value in values.items())
    names = tuple(capture.name for capture in function.captures)
    while True:
        try:
            return _write(definition, record, names, given, tuple(statics.items()))
        except NeedsStatic as needed:
            statics |= {place: values[place].number for place in needed.sources}


def translate(fn: Callable[..., Any], *args: Any, record: Record) -> str:
    """The CUDA C++ that a Python function becomes.

    Examples
    --------
    >>> print(translate(lambda x: 2 * x, record=Record((Field("", "float32"),))).partition("extern")[0])
    #include "vispark/rows.h"
    <BLANKLINE>
    static __device__ __forceinline__ void
    lambda(const float x, float& out_value)
    {
        out_value = 2.0f * x;
    }
    <BLANKLINE>
    <BLANKLINE>
    """
    return fuse((Call(trace(fn, args), args),), record).source


@dataclass(frozen=True)
class _Given:
    """The type of an argument or a capture."""

    type: Scalar
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Constant) -> _Given:
        return cls(Scalar(np.dtype(value.dtype).name, value.weak), value.shape)


def _described(definition: Definition, value: Any, number: int) -> Constant:
    try:
        return constant(value, f"argument {number + 1}")
    except Refusal as error:
        raise _at_definition(definition, str(error)) from error


def _at_definition(definition: Definition, message: str) -> TranslationError:
    return complain(message, form.At(definition.text.first, 0), definition.text, definition.name)


#: "argument" or "capture", and its number.
_Place = tuple[str, int]


@functools.lru_cache(maxsize=512)
def _write(definition: Definition, record: Record, names: tuple[str, ...],
           given: tuple[tuple[_Place, _Given], ...], statics: tuple[tuple[_Place, Any], ...]) -> Kernel:
    """Cached by types: a call with other values gives the kernel that there is."""
    try:
        return _KernelWriter(definition, record, names, dict(given), dict(statics)).write()
    except Refusal as error:
        raise _at_definition(definition, str(error)) from error


class _KernelWriter(Calls):
    """Writes one kernel."""

    def __init__(self, definition: Definition, record: Record, names: tuple[str, ...],
                 given: dict[tuple[str, int], _Given], statics: dict[tuple[str, int], Any]):
        super().__init__()
        self.definition, self.record, self.statics = definition, record, statics
        self.title = self.name(f"{definition.name}_kernel")
        self.frame = Frame(definition, {}, frozenset(), {})
        self.ports: list[tuple[Port, Parameter]] = []
        self.given: list[tuple[Port, Parameter]] = []
        self.captures = tuple(self._value(("capture", i), name, given["capture", i]) for i, name in enumerate(names))
        self.arguments = {place: one for place, one in given.items() if place[0] == "argument"}

    def write(self) -> Kernel:
        """The kernel."""
        variables = self._variables()
        kind = self.result_type(self.definition, variables, None)
        if isinstance(kind, Nothing):
            raise Refusal(f"{self.definition.name} returns nothing; a translated function returns its element's result")
        outputs: list[Output] = []
        structure = self._structure(kind, "", outputs)
        targets = [self._output(output) for output in outputs]
        with self.apart(2) as lines:
            self.run(self.definition, variables, None, Returns(lambda value: self._write_out(structure, targets, value,
                                                                                            kind)))
        return self._kernel(lines.lines, tuple(outputs), structure)

    # -- what comes in ------------------------------------------------------------------------------------------------

    def _value(self, place: tuple[str, int], wanted: str, one: _Given) -> Value:
        """An argument or a capture: a parameter of the kernel, or compiled in."""
        if place in self.statics:
            return literal(self.statics[place])
        name = self.name(wanted.replace(".", "_"))
        pointer = bool(one.shape)
        declared = f"const {one.type.c}* __restrict__ {name}" if pointer else f"const {one.type.c} {name}"
        parameter = Parameter(*place[:1], "", place[1], one.type.dtype, one.shape, pointer)
        self.given.append((Port(name, declared), parameter))
        if pointer:
            return stored(name, one.type, one.shape)
        return Number(one.type, name, sources=frozenset({place}) if one.type == INT else None)

    def _variables(self) -> dict[str, Value]:
        """The parameters' values: fields, arguments in order, defaults."""
        fields = {field.name: field for field in self.record.fields}
        taken = [parameter for parameter in self.definition.parameters if not parameter.keyword_only]
        if not taken:
            raise Refusal(f"{self.definition.name} has no parameter for the element")
        found: dict[str, Value] = {}
        if "" in fields:
            found[taken[0].name] = self._input(taken[0].name, fields[""])
        names = {parameter.name for parameter in self.definition.parameters}
        found |= {name: self._input(name, field) for name, field in fields.items() if name in names}
        if not found:
            raise Refusal(f"no parameter of {self.definition.name} is named after a field; the record's fields are "
                          + ", ".join(fields))
        rest = [parameter for parameter in taken if parameter.name not in found]
        if len(self.arguments) > len(rest):
            raise Refusal(f"{self.definition.name} takes {len(rest)} arguments beside the element, and "
                          f"{len(self.arguments)} are given")
        for parameter, (place, one) in zip(rest, self.arguments.items(), strict=False):
            found[parameter.name] = self._value(place, parameter.name, one)
        for parameter in self.definition.parameters:
            if parameter.name not in found:
                found[parameter.name] = self._default(parameter, fields)
        return found

    def _default(self, parameter: form.Parameter, fields: dict[str, Field]) -> Value:
        if parameter.default is None:
            known = "" if "" in fields else f"; the record's fields are {', '.join(fields)}"
            raise Refusal(f"no value is given for the parameter {parameter.name} of {self.definition.name}{known}")
        return self.expression(parameter.default)

    def _input(self, wanted: str, field: Field) -> Value:
        kind = scalar_of(field.dtype, f"the field {field.name}" if field.name else "the element")
        local, base = self.name(wanted), self.name(f"{wanted}_in")
        self.taken.add(f"{local}_tile")
        port = Port(base, f"const {kind.c}* __restrict__ {base}", local, kind.c, _count(field.shape),
                    kind.numpy.itemsize, not field.shape)
        self.ports.append((port, Parameter("input", field.name, 0, kind.dtype, field.shape, True)))
        return stored(local, kind, field.shape) if field.shape else Number(kind, local)

    # -- what goes out ------------------------------------------------------------------------------------------------

    def _structure(self, kind: Type, path: str, outputs: list[Output]) -> Structure:
        if isinstance(kind, DictType):
            if path:
                raise Refusal("a dict inside a result is not supported; return one dict of fields")
            items = []
            for name, item in zip(kind.names, kind.items, strict=True):
                if isinstance(item, tuple | DictType):
                    raise Refusal(f"the field {name} is {shown(item)}; a field is a number or an array")
                items.append(self._structure(item, name, outputs))
            return Structure("dict", items=tuple(items), names=kind.names)
        if isinstance(kind, tuple):
            if not kind:
                raise Refusal("an empty tuple cannot be returned")
            return Structure("tuple", items=tuple(self._structure(item, f"{path}.{i}".lstrip("."), outputs)
                                                  for i, item in enumerate(kind)))
        if isinstance(kind, Nothing):
            raise Refusal("None cannot be part of a result")
        element, shape = (kind.element, kind.shape) if isinstance(kind, ArrayType) else (kind, ())
        number = {"bool": "bool", "int64": "int", "float64": "float", "complex128": "complex"}[element.dtype] \
            if element.weak else ""
        outputs.append(Output(path, element.dtype, shape, number))
        return Structure("value", len(outputs) - 1)

    def _output(self, output: Output) -> Array | Number:
        kind = Scalar(output.dtype)
        base = self.name(f"out_{output.name}" if output.name else "out")
        local = self.name(f"{base}_row") if output.shape else base
        self.taken.add(f"{local}_tile")
        port = Port(base, f"{kind.c}* __restrict__ {base}", local, kind.c, _count(output.shape), kind.numpy.itemsize,
                    not output.shape, output=True)
        self.ports.append((port, Parameter("output", output.name, 0, kind.dtype, output.shape, True)))
        return stored(local, kind, output.shape) if output.shape else Number(kind, f"{base}[element]")

    def _write_out(self, structure: Structure, targets: list[Array | Number], value: Any, kind: Any) -> None:
        """Store what a ``return`` gives."""
        if isinstance(value, Tuple | Dict):
            kinds = kind.items if isinstance(kind, DictType) else kind
            for item, part, inner in zip(structure.items, value.items, kinds, strict=True):
                self._write_out(item, targets, part, inner)
            return
        target = targets[structure.output]
        if isinstance(target, Array):
            self.copy(target, value)
        else:
            element = kind if isinstance(kind, Scalar) else target.type
            self.line(f"{target.text} = {cast(cast(value, element), target.type).text};")

    def _kernel(self, lines: list[str], outputs: tuple[Output, ...], structure: Structure) -> Kernel:
        words = set(re.findall(r"\w+", "\n".join(lines)))
        ports = [(port, parameter) for port, parameter in self.ports if port.output or port.local in words]
        given = [(port, parameter) for port, parameter in self.given if port.base in words]
        layout = Layout.of([port for port, _ in ports])
        source = assemble(self.title, layout, [port for port, _ in given], lines)
        parameters = (*(parameter for _, parameter in (*ports, *given)), Parameter("count"))
        return Kernel(source, self.title, outputs, structure, parameters, layout.block)


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


