"""Expressions: names, literals, functions, tuples, lists, dicts and attributes."""

from __future__ import annotations

import dataclasses

from vispark.translate.codegen.dispatch import expression, lowers_node
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.frame import CallFrame
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.ragged import length_of
from vispark.translate.codegen.numpy.selected import count_of_selected
from vispark.translate.codegen.scalar.casts import cast, literal
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.types import INT
from vispark.translate.ir.values import (
    Array,
    Dict,
    List,
    LocalFunction,
    Method,
    Named,
    Nothing,
    Number,
    RaggedRow,
    Selected,
    SparseRow,
    Tuple,
    Value,
    describe,
)
from vispark.translate.language import registry
from vispark.translate.language.library import OF_SPARSE, PROPERTIES
from vispark.translate.language.unsupported import attribute_lacks


@lowers_node(nodes.Literal)
def lower_literal(emit: Emitter, node: nodes.Literal) -> Value:
    """Return a constant; None, ``...`` and strings are no numbers."""
    if node.value is None or node.value is Ellipsis:
        return Nothing("None" if node.value is None else "...")
    if isinstance(node.value, str):
        return Nothing(node.value)
    return literal(node.value)


@lowers_node(nodes.Local)
def lower_local(emit: Emitter, node: nodes.Local) -> Value:
    """Return the value that a name has here."""
    frame: CallFrame | None = emit.frame
    while frame is not None:
        if node.name in frame.variables:
            value = frame.variables[node.name]
            # Under a second name it would be the same array.
            return dataclasses.replace(value, fresh=False) if isinstance(value, Array) else value
        frame = frame.outer if node.name in frame.definition.free else None
    raise Refusal(f"{node.name} may have no value here: give it one on every way that leads here")


@lowers_node(nodes.Captured)
def lower_captured(emit: Emitter, node: nodes.Captured) -> Value:
    """Return a value from around the function."""
    return emit.captures[node.number]


@lowers_node(nodes.Library)
def lower_library(emit: Emitter, node: nodes.Library) -> Value:
    """Return a library function, to be called."""
    return Named(node.name)


@lowers_node(nodes.Called)
def lower_called(emit: Emitter, node: nodes.Called) -> Value:
    """Return a function of the user's, to be called."""
    defaults = tuple(None if parameter.default is None else emit.snapshot(expression(emit, parameter.default))
                     for parameter in node.definition.parameters)
    return LocalFunction(node.definition, defaults, emit.frame if node.definition.free else None)


@lowers_node(nodes.TupleOf)
def lower_tuple_of(emit: Emitter, node: nodes.TupleOf) -> Value:
    """Return a tuple."""
    return Tuple(tuple(expression(emit, item) for item in node.items), node.names)


@lowers_node(nodes.ListOf)
def lower_list_of(emit: Emitter, node: nodes.ListOf) -> Value:
    """Return a list."""
    return List(tuple(expression(emit, item) for item in node.items))


@lowers_node(nodes.DictOf)
def lower_dict_of(emit: Emitter, node: nodes.DictOf) -> Value:
    """Return a dict of fields."""
    return Dict(node.names, tuple(expression(emit, item) for item in node.items))


@lowers_node(nodes.FieldOf)
def lower_field_of(emit: Emitter, node: nodes.FieldOf) -> Value:
    value = expression(emit, node.value)
    if not isinstance(value, Dict):
        raise Refusal(f"{describe(value)} has no fields: [{node.name!r}] is of records that are dicts")
    if node.name not in value.names:
        raise Refusal(f"there is no field {node.name!r}; the fields are {', '.join(value.names)}")
    return value.items[value.names.index(node.name)]


@lowers_node(nodes.Attribute)
def lower_attribute(emit: Emitter, node: nodes.Attribute) -> Value:
    """Return ``value.name``: a property, or a method to be called."""
    value = expression(emit, node.value)
    if isinstance(value, Tuple) and node.name in value.names:
        return value.items[value.names.index(node.name)]
    if isinstance(value, Number | Array) and node.name in PROPERTIES and not (
            node.name == "dtype" and value.type.weak):
        return attribute(emit, value, node.name)
    if isinstance(value, Selected) and node.name == "size":
        return cast(count_of_selected(emit, value), INT)
    if isinstance(value, RaggedRow) and node.name == "size":
        return length_of(value)
    if isinstance(value, SparseRow) and node.name in (*OF_SPARSE, "size"):
        field: Value = getattr(value, node.name)
        return field
    if node.name in OF_SPARSE:
        raise Refusal(attribute_lacks(node.name, node.value.name if isinstance(node.value, nodes.Local) else ""))
    if isinstance(value, Number | Array | Selected | RaggedRow | SparseRow) and node.name in registry.methods():
        return Method(value, node.name)
    raise Refusal(f"{describe(value)} has no .{node.name} here")


def attribute(emit: Emitter, value: Number | Array, name: str) -> Value:
    """Return ``value.name`` of a number or an array."""
    shape = value.shape if isinstance(value, Array) else ()
    if name == "shape":
        return Tuple(tuple(map(literal, shape)))
    if name == "dtype":
        return Named(f"numpy.{value.type.dtype}")
    if name in ("size", "ndim"):
        return literal(len(shape) if name == "ndim" else (value.size if isinstance(value, Array) else 1))
    if name == "T":
        return call_library(emit, "numpy.transpose", (value,), {})
    return call_library(emit, f"numpy.{name}", (value,), {})


@lowers_node(nodes.Spread)
def lower_spread(emit: Emitter, node: nodes.Spread) -> Value:
    """Refuse ``*`` where no arguments stand."""
    raise Refusal("* stands before an argument of a function of yours, of min or of max only")


@lowers_node(nodes.Each)
def lower_each(emit: Emitter, node: nodes.Each) -> Value:
    """Refuse a generator that no function takes."""
    raise Refusal("a generator stands inside sum(), min(), max(), any() or all() only")
