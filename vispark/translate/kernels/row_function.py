"""Writer of the row function of a chain: the functions of several ``vmap`` one after the other, for one element.

What one function gives is the next one's element, with the rounding to the field's dtype that an array between them
would bring, but it is stored nowhere. Fields that are not wanted are not computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vispark.translate.codegen.dispatch import expression
from vispark.translate.codegen.elementwise import astype
from vispark.translate.codegen.emitter import Serial
from vispark.translate.codegen.frame import CallFrame, Returns
from vispark.translate.codegen.library import emitter
from vispark.translate.codegen.scalar import dead_code
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.codegen.scalar.interface import (
    PLACES,
    STARTS,
    ElementField,
    ElementSpec,
    KernelOutput,
    KernelParameter,
    ResultStructure,
    TracedCall,
)
from vispark.translate.codegen.syntax.functions import called, result_type, run
from vispark.translate.frontend.capture import argument
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.nodes import Constant, Definition
from vispark.translate.ir.types import INT, Scalar, scalar_of
from vispark.translate.ir.values import (
    Array,
    ArrayType,
    Dict,
    DictType,
    ListType,
    NamedTupleType,
    Nothing,
    Number,
    RaggedRow,
    SparseRow,
    Tuple,
    Type,
    Value,
    given_number,
    shown,
    stored,
)
from vispark.translate.kernels import outer_sums
from vispark.translate.kernels.outer_sums import Factor, NotFactored, OuterSum
from vispark.translate.kernels.row_matmul import Product, ProductRow, RowProducts

#: What kernels around row functions call their own variables.
_FRAME_WORDS = frozenset(["i", "j", "last", "start", "key", "turns", "least", "greatest", "ahead", "stage"])

#: "argument" or "capture", and its number among those of the whole chain.
InputPlace = tuple[str, int]


@dataclass(frozen=True)
class ArgumentType:
    """The type of an argument or a capture."""

    type: Scalar
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Constant) -> ArgumentType:
        return cls(Scalar(np.dtype(value.dtype).name, value.weak), value.shape)


@dataclass(frozen=True)
class Link:
    """One function of a chain, with the names of its captures and the number of its arguments."""

    definition: Definition
    captures: tuple[str, ...]
    arguments: int


def links_of(calls: Sequence[TracedCall]) -> tuple[Link, ...]:
    """Return the functions of a chain."""
    return tuple(Link(call.function.definition, tuple(capture.name for capture in call.function.captures),
                      len(call.args)) for call in calls)


def values_of(calls: Sequence[TracedCall]) -> dict[InputPlace, Constant]:
    """Return the arguments and captures of a chain."""
    captures = [capture for call in calls for capture in call.function.captures]
    arguments = [(call, arg) for call in calls for arg in call.args]
    values: dict[InputPlace, Constant] = {("capture", i): capture.value for i, capture in enumerate(captures)}
    return values | {("argument", i): argument(call.function.definition, arg, i)
                     for i, (call, arg) in enumerate(arguments)}


def givens(values: dict[InputPlace, Constant]) -> tuple[tuple[InputPlace, ArgumentType], ...]:
    """Return the types of arguments and captures."""
    return tuple((place, ArgumentType.of(value)) for place, value in values.items())


@dataclass(frozen=True)
class Port:
    """An array of rows that comes in or goes out.

    ``base`` is its name in the kernel and ``local`` that of a row, or of a number, in the row function; ``count`` the
    numbers in a row; ``number`` says that an element is a number rather than a row.
    """

    base: str
    local: str
    c: str
    count: int
    itemsize: int
    number: bool
    output: bool
    parameter: KernelParameter

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return self.count * self.itemsize


@dataclass(frozen=True)
class RowFunction:
    """The row function, and what a kernel around it must know.

    Attributes
    ----------
    name, lines
        The function's name, and its body.
    inputs, outputs : tuple of Port
        Its rows; of outputs all that are wanted.
    given : tuple of (str, KernelParameter)
        Declarations of the other parameters, and the parameters.
    results : tuple of KernelOutput
        The wanted outputs.
    structure : ResultStructure
        How the last function's result is built.
    merge : bool
        Whether the fields of the chain's input stay beside the outputs.
    scratch : int
        Bytes of shared memory for each row; of a row's only thread, of device memory.
    products : tuple of Product
        Products of its rows with matrices, which it is given.
    stages : tuple of ProductRow
        What leaves rows that are multiplied, in the order of the products.
    outers : tuple of OuterSum
        Folded matrices, of which the function leaves factors.
    flats : tuple of Port
        Arrays of a block that have the items of all its rows, which the function is given as they are.
    """

    name: str
    lines: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    given: tuple[tuple[str, KernelParameter], ...]
    results: tuple[KernelOutput, ...]
    structure: ResultStructure
    merge: bool
    scratch: int
    products: tuple[Product, ...] = ()
    stages: tuple[ProductRow, ...] = ()
    outers: tuple[OuterSum, ...] = ()
    flats: tuple[Port, ...] = ()

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The rows that the function leaves for the products of folded matrices, each once."""
        return tuple(dict.fromkeys(factor for outer in self.outers for factor in outer.factors if not factor.row))

    def row_of(self, product: Product) -> Port | ProductRow:
        """Return the row that is multiplied."""
        stage = next((one for one in self.stages if one.name == product.row), None)
        return stage or next(port for port in self.inputs if port.local == product.row)

    @property
    def shared_widths(self) -> list[tuple[int, int]]:
        """The numbers and bytes of rows that the lanes of a row share: inputs that the function goes along itself,
        products, and rows that are multiplied.
        """
        text = "\n".join([*self.lines, *(line for stage in self.stages for line in stage.lines)])
        along = [port for port in self.inputs if re.search(rf"\b{port.local}\b(?!\[\d+\])", text)]
        return [*((port.count, port.nbytes) for port in along), *((stage.count, stage.nbytes) for stage in self.stages),
                *((product.width, product.width * product.itemsize) for product in self.products)]

    @property
    def read(self) -> tuple[Port, ...]:
        """The inputs that the function reads itself, without those that are only multiplied by a matrix."""
        words = _words([*self.lines, *(line for stage in self.stages for line in stage.lines)])
        return tuple(port for port in self.inputs if port.local in words)


class RowWriter:
    """Writer of one row function: what comes in, the functions of a chain, what goes out.

    Parameters
    ----------
    links : sequence of Link
        The functions, in order.
    record : ElementSpec
        What the first one's element is.
    given_types : dict
        The types of arguments and captures.
    statics : dict
        Those that are compiled in, by value.
    wanted : frozenset of str or None
        The outputs to compute; None for all.
    folded : bool
        Whether all fields of the result go out, into accumulators, of which each lane has its own.
    lanes : int
        The threads that share a row.
    multiplied : bool
        Whether the kernel around it can multiply rows with matrices.
    apart : frozenset of str or None
        The folded matrices whose factors do not go out, but their items; None where no factors do.
    least : int
        The items of the smallest matrix whose factors go out.
    """

    def __init__(self, links: Sequence[Link], record: ElementSpec, given_types: dict[InputPlace, ArgumentType],
                 statics: dict[InputPlace, Any],
                 wanted: frozenset[str] | None, folded: bool, lanes: int, multiplied: bool = False,
                 apart: frozenset[str] | None = None, least: int = outer_sums.LEAST_ITEMS):
        self.factored = apart, least
        self.outers: dict[str, OuterSum] = {}
        self.one_return = True
        self.links, self.record, self.given_types, self.statics = links, record, given_types, statics
        self.wanted, self.folded = wanted, folded
        self.emit = emitter(links[0].definition, lanes)
        self.emit.hints = True
        self.products = self.emit.products = RowProducts(self.emit, self.factor_of, multiplied)
        self.title = self.outer_name("_then_".join(dict.fromkeys(link.definition.name for link in links)))
        self.inputs: dict[str, Port] = {}
        self.flats: dict[str, Port] = {}
        self.ports: list[Port] = []
        self.given: list[tuple[str, str, KernelParameter]] = []

    def write(self) -> RowFunction:
        """Return the row function."""
        fields: dict[str, Any] = {field.name: field for field in self.record.fields}
        first = {"argument": 0, "capture": 0}
        merge = True
        with self.emit.detached(1) as lines:
            self.products.base = lines
            for number, link in enumerate(self.links):
                definition = link.definition
                self.emit.frame = CallFrame(definition, {})
                self.emit.captures = tuple(self._value(("capture", first["capture"] + i), name)
                                           for i, name in enumerate(link.captures))
                variables = self._variables(link, fields, first["argument"])
                first = {"argument": first["argument"] + link.arguments,
                         "capture": first["capture"] + len(link.captures)}
                kind = result_type(self.emit, definition, variables, None)
                if isinstance(kind, Nothing):
                    raise Refusal(f"{definition.name} returns nothing; a translated function returns its element's "
                                  "result")
                outputs: list[KernelOutput] = []
                structure = self._structure(kind, "", outputs)
                stays = structure.kind == "dict" and not _is_tuple(fields)
                merge = merge and stays
                if not stays:
                    fields = {}
                if number < len(self.links) - 1:
                    value = called(self.emit, definition, variables, None)
                    fields |= dict(self._boundary(structure, kind, value, outputs))
            # What earlier functions gave, and the last one leaves as it is.
            replaced = {output.name for output in outputs}
            remaining = {name: value for name, value in fields.items() if name not in replaced}
            results, targets = self._outputs(remaining, outputs)
            self.one_return = liveness.returns(definition.body) <= 1
            run(self.emit, definition, variables, None, Returns(
                lambda value: self._write_out(structure, targets, value, kind, outputs)))
            for name, value in remaining.items():
                if name in targets:
                    self._store(targets[name], self._taken(name, value))
        return self._function(lines.lines, results, structure, merge)

    def outer_name(self, wanted: str) -> str:
        """Return a name that the kernel around the row function has no other use for either."""
        added = _FRAME_WORDS - self.emit.taken
        self.emit.taken |= added
        name = self.emit.name(wanted)
        self.emit.taken -= added
        return name

    # -- what comes in ------------------------------------------------------------------------------------------------

    def _value(self, place: InputPlace, wanted: str) -> Value:
        """Return an argument or a capture: a parameter of the kernel, or compiled in."""
        if place in self.statics:
            return literal(self.statics[place])
        one, name = self.given_types[place], self.outer_name(wanted.replace(".", "_"))
        pointer = bool(one.shape)
        declared = f"const {one.type.c}* __restrict__ {name}" if pointer else f"const {one.type.c} {name}"
        self.given.append((name, declared,
                           KernelParameter(*place[:1], "", place[1], one.type.dtype, one.shape, pointer)))
        if pointer:
            return stored(name, one.type, one.shape)
        return given_number(one.type, name, place, wanted)

    def _variables(self, link: Link, fields: dict[str, Value | ElementField], first: int) -> dict[str, Value]:
        """Return the parameters' values: fields, arguments in order, defaults."""
        definition = link.definition
        positional = [parameter for parameter in definition.parameters if not parameter.keyword_only]
        many = next((parameter.name for parameter in definition.parameters if parameter.many), "")
        if not positional and not (many and "" in fields):
            raise Refusal(f"{definition.name} has no parameter for the element")
        variables: dict[str, Value] = {}
        first_of: tuple[Value, ...] = ()
        if not positional:
            variables[many] = Tuple(first_of := (self._taken(many, fields[""]),))
        elif "" in fields:
            variables[positional[0].name] = self._taken(positional[0].name, fields[""])
        elif _is_tuple(fields):
            variables[positional[0].name] = self._tuple_of(positional[0].name, fields)
        names = {parameter.name for parameter in definition.parameters if not parameter.many}
        variables |= {name: self._taken(name, field) for name, field in fields.items() if name in names}
        if not variables:
            variables[positional[0].name] = self._record_of(positional[0].name, definition, fields)
        rest = [parameter for parameter in positional if parameter.name not in variables]
        if link.arguments > len(rest) and many:
            behind = range(first + len(rest), first + link.arguments)
            variables[many] = Tuple((*first_of, *(self._value(("argument", number), f"{many}_{place}")
                                                  for place, number in enumerate(behind))))
        elif link.arguments > len(rest):
            raise Refusal(f"{definition.name} takes {len(rest)} arguments beside the element, and "
                          f"{link.arguments} are given")
        for parameter, number in zip(rest, range(first, first + link.arguments), strict=False):
            variables[parameter.name] = self._value(("argument", number), parameter.name)
        for parameter in definition.parameters:
            if parameter.name not in variables:
                variables[parameter.name] = self._default(definition, parameter, fields)
        return variables

    def _record_of(self, wanted: str, definition: Definition, fields: dict[str, Value | ElementField]) -> Dict:
        """Return a record of fields as a dict; of its fields those that the function may read."""
        read = {node.name for node in nodes.nodes_of(definition.body, called=True) if isinstance(node, nodes.FieldOf)}
        if not read:
            raise Refusal(f"no parameter of {definition.name} is named after a field; the record's fields are "
                          f"{', '.join(fields)}: name parameters so, or take them as "
                          f"{wanted}[\"{next(iter(fields))}\"]")
        names = [name for name in fields if name in read or not read <= fields.keys()]
        return Dict(tuple(names), tuple([self._taken(name, fields[name]) for name in names]))

    def _tuple_of(self, wanted: str, fields: dict[str, Value | ElementField]) -> Tuple:
        """Return the fields of a record that is a tuple, which may hold tuples."""
        items = list[Value]()
        for number in range(1 + max(int(name.partition(".")[0]) for name in fields)):
            inner = {name.partition(".")[2]: field for name, field in fields.items()
                     if name.partition(".")[0] == str(number)}
            name = f"{wanted}_{number}"
            items.append(self._item_of(name, inner))
        return Tuple(tuple(items))

    def _item_of(self, wanted: str, fields: dict[str, Value | ElementField]) -> Value:
        """Return an item of a tuple, of its fields by their names in it: a value, a tuple or a dict."""
        if "" in fields:
            return self._taken(wanted, fields[""])
        if _is_tuple(fields):
            return self._tuple_of(wanted, fields)
        return Dict(tuple(fields), tuple([self._taken(f"{wanted}_{name}", field) for name, field in fields.items()]))

    def _default(self, definition: Definition, parameter: nodes.Parameter,
                 fields: dict[str, Value | ElementField]) -> Value:
        if parameter.default is None:
            fields_text = "" if "" in fields else f"; the record's fields are {', '.join(fields)}"
            raise Refusal(f"no value is given for the parameter {parameter.name} of {definition.name}{fields_text}")
        return expression(self.emit, parameter.default)

    def _taken(self, wanted: str, field: Value | ElementField) -> Value:
        """Return a field as a value: the result of an earlier function, or an input."""
        if not isinstance(field, ElementField):
            return field
        if field.ragged:
            return self._ragged(wanted, field)
        kind = scalar_of(field.dtype, f"the field {field.name}" if field.name else "the element")
        kind = replace(kind, weak=field.weak)
        if field.name not in self.inputs:
            local, base = self.outer_name(wanted), self.outer_name(f"{wanted}_in")
            self.emit.taken |= {f"{local}_tile", f"{local}_tiles"}
            self.inputs[field.name] = Port(base, local, kind.c, _count(field.shape), kind.numpy.itemsize,
                                           not field.shape, False,
                                           KernelParameter("input", field.name, 0, kind.dtype, field.shape, True))
        local = self.inputs[field.name].local
        if field.items:
            row = stored(local, kind, field.shape)
            return Tuple(tuple(cast(row.at(str(place)), Scalar(dtype, weak))
                               for place, (dtype, weak) in enumerate(field.items)))
        return stored(local, kind, field.shape) if field.shape else Number(kind, local)

    def _ragged(self, wanted: str, field: ElementField) -> RaggedRow | SparseRow:
        """Return a field of rows of several lengths, whose items lie in one array with the items of all other rows."""
        if self.emit.lanes > 1:
            raise Serial
        width = 3 if field.ragged == "sparse" else 2
        starts: Any = self._taken(f"{wanted}_starts", ElementField(field.name + STARTS, "int64", (width,)))
        length = self.emit.keep(Number(Scalar("int32"), f"(int){starts.element('1')}"), f"{wanted}_length").text
        values = self._flat(wanted, field.name, field.dtype, starts.element("0"), length)
        if field.ragged != "sparse":
            return values
        places = self._flat(f"{wanted}_places", field.name + PLACES, "int32", starts.element("0"), length)
        size = self.emit.keep(Number(INT, starts.element("2"), bounds=(0, 2**31 - 1)), f"{wanted}_size")
        return SparseRow(places, values, size)

    def _flat(self, wanted: str, name: str, dtype: str, start: str, length: str) -> RaggedRow:
        """Return a row of an array that has the items of all rows."""
        kind = scalar_of(dtype, f"the field {name}" if name else "the element")
        if name not in self.flats:
            base = self.outer_name(f"{wanted}_all")
            self.flats[name] = Port(base, base, kind.c, 0, kind.numpy.itemsize, False, False,
                                    KernelParameter("input", name, 0, kind.dtype, (), True))
        items = self.emit.name(f"{wanted}_items")
        self.emit.line(f"const {kind.c}* const {items} = {self.flats[name].local} + {start};")
        return RaggedRow(kind, length, lambda index: f"{items}[{index}]")

    # -- from one function to the next --------------------------------------------------------------------------------

    def _boundary(self, structure: ResultStructure, kind: Any, value: Any,
                  outputs: list[KernelOutput]) -> list[tuple[str, Value]]:
        """Return the result of a function as the fields of the next one: each in its dtype, and computed once."""
        if isinstance(value, Tuple | Dict):
            kinds = kind.items if isinstance(kind, DictType) else kind
            return [found for item, inner, part in zip(structure.items, kinds, value.items, strict=True)
                    for found in self._boundary(item, inner, part, outputs)]
        output = outputs[structure.output]
        if isinstance(value, Array):
            value = astype(value, Scalar(output.dtype))
            if value.volatile or not value.cheap:
                value = self.emit.materialised(value, output.name or "row")
            return [(output.name, value)]
        number = cast(cast(value, kind), Scalar(output.dtype))
        return [(output.name, self.emit.keep(number, output.name or "value"))]

    # -- what goes out ------------------------------------------------------------------------------------------------

    def _structure(self, kind: Type, path: str, outputs: list[KernelOutput]) -> ResultStructure:
        if isinstance(kind, DictType):
            if path:
                raise Refusal("a dict inside a result is not supported; return one dict of fields")
            items = []
            for name, item in zip(kind.names, kind.items, strict=True):
                if isinstance(item, tuple | DictType):
                    raise Refusal(f"the field {name} is {shown(item)}; a field is a number or an array")
                items.append(self._structure(item, name, outputs))
            return ResultStructure("dict", items=tuple(items), names=kind.names)
        if isinstance(kind, tuple):
            if not kind:
                raise Refusal("an empty tuple cannot be returned")
            return ResultStructure("tuple", items=tuple(self._structure(item, f"{path}.{i}".lstrip("."), outputs)
                                                        for i, item in enumerate(kind)))
        if isinstance(kind, Nothing):
            raise Refusal("None cannot be part of a result")
        if kind is None:
            raise Refusal("a result is of numbers and arrays, and this has a function, a type or a range in it")
        if isinstance(kind, ListType | NamedTupleType):
            raise Refusal(f"{shown(kind)} cannot be part of a result; make it an array or a tuple")
        element, shape = (kind.element, kind.shape) if isinstance(kind, ArrayType) else (kind, ())
        number = {"bool": "bool", "int64": "int", "float64": "float", "complex128": "complex"}[element.dtype] \
            if element.weak else ""
        outputs.append(KernelOutput(path, element.dtype, shape, number))
        return ResultStructure("value", len(outputs) - 1)

    def _outputs(self, rest: dict[str, Value | ElementField],
                 last: list[KernelOutput]) -> tuple[list[KernelOutput], dict[str, Array | Number]]:
        """Return the kernel's outputs, in order, and the array or number that stores each."""
        own = []
        value: Any
        for name, value in rest.items():
            if isinstance(value, ElementField):
                if self.folded:
                    own.append(KernelOutput(name, np.dtype(value.dtype).newbyteorder("=").name, value.shape))
            else:
                own.append(KernelOutput(name, value.type.dtype, value.shape if isinstance(value, Array) else ()))
        results = [output for output in (*own, *last) if self.wanted is None or output.name in self.wanted]
        return results, {output.name: self._output(output) for output in results}

    def _output(self, output: KernelOutput) -> Array | Number:
        kind = Scalar(output.dtype)
        base = self.outer_name(f"out_{output.name}" if output.name else "out")
        local = self.outer_name(f"{base}_{'row' if output.shape else 'value'}")
        endings = ("_tile", "_folds", "_cells", "_sizes", "_nans", "_partial")
        self.emit.taken |= {f"{base}{ending}" for ending in endings}
        self.ports.append(Port(base, local, kind.c, _count(output.shape), kind.numpy.itemsize, not output.shape, True,
                               KernelParameter("output", output.name, 0, kind.dtype, output.shape, True)))
        if not output.shape:
            return Number(kind, local)
        # One whose factors go out is marked as an array of its own, which no other output is.
        apart, least = self.factored
        factors = apart is not None and output.name not in apart and len(output.shape) == 2 \
            and self.ports[-1].count >= least
        return stored(local, kind, output.shape, fresh=factors)

    def _store_factors(self, target: Array, value: Array) -> None:
        """Write a folded matrix's factors; where there are several returns, each leaves as many."""
        port = next(port for port in self.ports if target.element("0", "0").startswith(f"{port.local}["))
        name = port.parameter.name
        with self.emit.detached() as lines:
            factors = outer_sums.factored(value, target.type)
        outer = self.outers.get(name)
        if factors is None or lines.lines or (outer and len(outer.pairs) != len(factors.pairs)):
            raise NotFactored(name)
        if outer is None:
            outer = self.outers[name] = self._outer_of(port, target, factors)
        self.outers[name] = replace(outer, symmetric=outer.symmetric and factors.symmetric)
        written = set[str]()
        for pair, texts in zip(outer.pairs, factors.pairs, strict=True):
            for factor, text in zip(pair, texts, strict=True):
                if factor.name in written or factor.row:
                    continue
                written.add(factor.name)
                with self.emit.along((factor.count,)) as (place,):
                    self.emit.line(f"{factor.name}[{place}] = {outer_sums.place(text, place)};")

    def _outer_of(self, port: Port, target: Array, factors: outer_sums.Factored) -> OuterSum:
        high, broad = target.shape
        pairs = []
        for first, second in factors.pairs:
            # A row multiplied by itself is one factor, unless another return may make it two.
            alike = high == broad and outer_sums.place(first, "j") == outer_sums.place(second, "j") and self.one_return
            left = self._factor(port, high, first)
            pairs.append((left, left if alike else self._factor(port, broad, second)))
        return OuterSum(port.parameter.name, port.base, port.c, port.parameter.dtype, high, broad, tuple(pairs),
                        factors.symmetric)

    def _factor(self, port: Port, count: int, text: str) -> Factor:
        """Return a factor; what lanes have before them as a part of the row is not copied."""
        part = outer_sums.part_of_row(text) if self.emit.lanes > 1 and self.one_return and port.c == "float" else None
        if part is not None and self.factor_of(part[0]) == ("row", Scalar(port.parameter.dtype)):
            return Factor(f"{part[0]}_{part[1]}", port.c, port.itemsize, count, *part)
        name = self.emit.lasting("factor")
        self.emit.taken.add(f"{name}_tile")
        return Factor(name, port.c, port.itemsize, count)

    def _write_out(self, structure: ResultStructure, targets: dict[str, Array | Number], value: Any, kind: Any,
                   outputs: list[KernelOutput]) -> None:
        """Store what a ``return`` gives."""
        if isinstance(value, Tuple | Dict):
            kinds = kind.items if isinstance(kind, DictType) else kind
            for item, part, inner in zip(structure.items, value.items, kinds, strict=True):
                self._write_out(item, targets, part, inner, outputs)
            return
        target = targets.get(outputs[structure.output].name)
        if target is not None:
            self._store(target, value if isinstance(target, Array) else
                        cast(value, kind if isinstance(kind, Scalar) else target.type))

    def _store(self, target: Array | Number, value: Any) -> None:
        if isinstance(target, Number):
            self.emit.line(f"{target.text} = {cast(value, target.type).text};")
        elif target.fresh:
            self._store_factors(target, value)
        elif self.folded and self.emit.lanes > 1:
            self._deal_out(target, value)
        else:
            self.emit.copy(target, value)

    def _deal_out(self, target: Array, value: Array) -> None:
        """Write the copy of each lane's own columns, which the lane folds."""
        local = target.element(*("0",) * len(target.shape)).partition("[")[0]
        size, slot, place = target.size, self.emit.name("slot"), self.emit.name("j")
        slots = -(-size // self.emit.lanes)
        self.emit.unroll(slots)
        with self.emit.block(f"for (int {slot} = 0; {slot} < {slots}; ++{slot})"):
            self.emit.line(f"const int {place} = {slot} * {self.emit.lanes} + lane;")
            with self.emit.block(f"if ({place} < {size})"):
                element = cast(value.at(*self.emit.unflattened(place, target.shape)), target.type)
                self.emit.line(f"{local}[{slot}] = {element.text};")

    def _function(self, lines: list[str], results: list[KernelOutput], structure: ResultStructure,
                  merge: bool) -> RowFunction:
        reused = _reusing(lines, self.products.stages)
        lines = dead_code.without(reused(lines, None))
        words, products, stages = _words(lines), list[Product](), list[ProductRow]()
        # A product may be of a row that is made of other products, which were written before it.
        for product in reversed(self.products.products.values()):
            if product.name not in words:
                continue
            products.insert(0, product)
            words |= {product.row, product.matrix}
            if product.row in self.products.stages:
                stage = self.products.stages[product.row]
                stages.insert(0, replace(stage, lines=tuple(dead_code.without(reused(stage.lines, stage)))))
                words |= _words(stages[0].lines)
        words |= {factor.row for outer in self.outers.values() for factor in outer.factors}
        inputs = tuple(port for port in self.inputs.values() if port.local in words)
        captured = tuple((declared, parameter) for name, declared, parameter in self.given if name in words)
        outers = tuple(self.outers.values())
        ports = tuple(port for port in self.ports if port.parameter.name not in self.outers)
        flats = tuple(port for port in self.flats.values() if port.local in words)
        return RowFunction(self.title, tuple(lines), inputs, ports, captured, tuple(results), structure, merge,
                           self.emit.scratch, tuple(products), tuple(stages), outers, flats)

    def factor_of(self, name: str) -> tuple[str, Scalar] | None:
        """Return a row of the element, or an array argument, by its name."""
        for port in self.inputs.values():
            if port.local == name and not port.number:
                return "row", Scalar(port.parameter.dtype)
        for declared, _, parameter in self.given:
            if declared == name and parameter.pointer:
                return "matrix", Scalar(parameter.dtype)
        return None


def _reusing(lines: Sequence[str], stages: dict[str, ProductRow]) -> Callable[..., list[str]]:
    """Return a function that makes lines read the rows that stages left, in place of arrays that these copy: those of
    the lines after a stage, and the stage's own.
    """
    def declared(stage: ProductRow, name: str) -> str:
        return rf"\s*(?:{stage.c}\* const {name} = .*|{stage.c} {name}\[{stage.count}\]);"

    def stays(stage: ProductRow) -> bool:
        changed = rf"\b{stage.array}(?:\[[^=]*\] [-+*/|&^]?= |\b(?!\[))"
        return bool(stage.array) and tuple(lines[:stage.before]) == stage.lines[:stage.before] \
            and any(re.fullmatch(declared(stage, stage.array), line) for line in lines[:stage.before]) \
            and not any(re.search(changed, line) for line in lines[stage.before:])

    staying = [stage for stage in stages.values() if stays(stage)]

    def reused(of: Sequence[str], end: ProductRow | None) -> list[str]:
        rewritten = list(of)
        for stage in staying:
            first = 0 if stage is end else stage.before
            if end is None or stage.before <= end.before:
                rewritten[first:] = [re.sub(rf"\b{stage.array}\b", stage.name, line) for line in rewritten[first:]]
        if end in staying:
            own = re.compile(rf"{declared(end, end.name)}|\s*{end.name}\[(\w+)\] = {end.name}\[0 \+ 1 \* \1\];")
            rewritten = [line for line in rewritten if not own.fullmatch(line)]
        return rewritten

    return reused


def _is_tuple(fields: dict[str, Value | ElementField]) -> bool:
    """Return whether a record's fields are the items of a tuple."""
    return bool(fields) and all(name.partition(".")[0].isdecimal() for name in fields)


def _words(lines: Sequence[str]) -> set[str]:
    return set(re.findall(r"\w+", "\n".join(lines)))


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
