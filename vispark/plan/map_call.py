"""Recorded calls of ``vmap``, and their meaning for blocks of one signature."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.messages import (
    Accumulators,
    Argument,
    ArrayArgument,
    Field,
    In,
    Launch,
    Out,
    Preparation,
    Signature,
    ValueArgument,
)
from vispark._utils.lazy import LazyModule
from vispark.data.records import RecordLayout
from vispark.data.records.layout import BY_NAME, PLACES, STARTS, fields_in, full_name, held_as
from vispark.data.records.pairs import whole as whole_pairs
from vispark.errors import LaunchError, MeaningWarning, Place, PlanError
from vispark.plan.cuda_source import ArrayValue, Kernels
from vispark.plan.references import TableReference
from vispark.plan.slots import ArgumentRef, ModuleTable, SlotTable
from vispark.translate import ElementField, ElementSpec, Function, KernelParameter
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT, TableKernel, TracedCall
from vispark.translate.frontend import index_faults
from vispark.translate.frontend.meaning import (
    is_given_to_numpy,
    is_returned_in_dict,
    same_by_rows,
    takes_pair_apart,
)
from vispark.translate.frontend.python_numbers import meaning_of_numbers
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import TranslationError
from vispark.translate.ir.folding import Folding
from vispark.translate.ir.nodes import Constant, Definition

if TYPE_CHECKING:
    from vispark.translate import fusion
    from vispark.translate.frontend import reader
    from vispark.translate.nearest import two_pass
else:
    reader = LazyModule("vispark.translate.frontend.reader")
    fusion = LazyModule("vispark.translate.fusion")
    two_pass = LazyModule("vispark.translate.nearest.two_pass")

#: What a function may be of.
OF = ("record", "value", "row")

#: The places of functions that were warned of, in this process, each with the form of the records.
_warned: set[tuple[str, nodes.At, object]] = set()


class MapShape(NamedTuple):
    """Cache key of a recorded call without its values: (dtype, shape, weak) of each capture and argument."""

    definition: Definition
    captures: tuple[tuple[str, tuple[int, ...], bool], ...]
    arguments: tuple[tuple[str, tuple[int, ...], bool], ...]
    of: str


@dataclass(frozen=True, slots=True)
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
    of : str
        What the function is of: "record", "value", "row", or empty where the call does not say.
    """

    function: Function
    arguments: tuple[Constant, ...]
    label: str
    of: str = ""

    def shape_key(self) -> MapShape:
        """Return the cache key of the call: captures and arguments by type only, for which the kernel is made."""
        captures = [each.value for each in self.function.captures]
        return MapShape(self.function.definition, tuple([(each.dtype, each.shape, each.weak) for each in captures]),
                        tuple([(each.dtype, each.shape, each.weak) for each in self.arguments]), self.of)

    @property
    def captured(self) -> tuple[Constant, ...]:
        """The values that the function captured from its surroundings."""
        return tuple([capture.value for capture in self.function.captures])

    def value(self, origin: ArgumentRef) -> ArrayValue:
        """Return an argument or a capture."""
        argument = self.arguments[origin.number] if origin.kind == "argument" else \
            self.function.captures[origin.number].value
        return ArrayValue(argument.dtype, argument.shape, argument.data)

    @property
    def tables(self) -> tuple[TableReference, ...]:
        """The arguments and captures that workers hold."""
        return tuple([each.data for each in (*self.arguments, *self.captured) if isinstance(each.data, TableReference)])

    @property
    def values(self) -> tuple[Any, ...]:
        """The arguments as numbers and arrays."""
        return tuple(each.array if each.shape else each.number for each in self.arguments)


def record_map(function: Callable[..., Any], arguments: tuple[Any, ...], of: str | None = None) -> MapSpec:
    """Record a call.

    Raises
    ------
    TranslationError
        If the function has what the language lacks, at its line.
    PlanError
        If ``of`` is none of the words that there are.
    """
    if of is not None and of not in OF:
        raise PlanError(f"of={of!r}; it is {', '.join(map(repr, OF))}, or left out")
    traced, values = reader.trace_call(function, arguments)
    label = f"vmap {traced.definition.name}"
    index_faults.remember(label, traced.definition)
    return MapSpec(traced, values, label, of or "")


@dataclass(frozen=True, slots=True)
class Mapped:
    """Calls of ``vmap`` for blocks of one signature, in one kernel.

    Attributes
    ----------
    kernel : TableKernel
        Its source, and how it is launched.
    settled : frozenset of ArgumentRef
        The Python ints, bools and infinities whose values the kernel has compiled in, or does not need.
    whole : bool
        Whether it takes each block as one element.
    paired : bool
        Whether what it gives are pairs with keys of their own.
    item : str
        The item of kept pairs that it is of; empty where it is of whole records.
    """

    kernel: TableKernel
    settled: frozenset[ArgumentRef]
    whole: bool = False
    paired: bool = False
    item: str = ""


NumberedCall = tuple[int, MapSpec]


def resolve_maps(calls: Sequence[NumberedCall], layout: RecordLayout, signature: Signature, *,
                 wanted: frozenset[str] | None = None,
                 folding: Folding | None = None, shared_limit: int = SHARED_LIMIT) -> Mapped:
    """Compile calls, each with its position in the chain, into one kernel for blocks of one layout and signature.

    Parameters
    ----------
    wanted : frozenset of str, optional
        The outputs to compute; all if left out.
    folding : Folding, optional
        What the results are folded into.
    shared_limit : int
        The bytes of shared memory that a thread block can have where it runs.

    Raises
    ------
    TranslationError
        If the types of the data do not go with the functions.
    LaunchError
        If the block's fields differ in their leading extent.
    """
    whole = takes_whole(calls[0][1], layout, signature)
    if not whole:
        leading(calls[0][1], signature)
    try:
        kernel = fusion.fuse([TracedCall(spec.function, spec.values) for _, spec in calls],
                             _element(calls[0][1], layout, signature, whole), wanted=wanted,
                             folding=folding, shared_limit=shared_limit)
    except TranslationError as error:
        if hint := _hint(layout, signature, whole):
            error.args = (f"{error.message}\n  {hint}", *error.args[1:])
        raise
    _warn(calls[0][1], layout, signature, whole)
    passed = {origin for origin in _origins(kernel, calls) if origin is not None}
    compiled = {ArgumentRef(position, kind, number) for position, spec in calls
             for kind, values in (("argument", spec.arguments), ("capture", spec.captured))
             for number, value in enumerate(values) if value.weak and (
                 np.dtype(value.dtype).kind in "bi" or (not value.shape and value.number in (math.inf, -math.inf)))}
    is_pair = kernel.structure.kind == "tuple" and len(kernel.structure.items) == 2
    # A value that is a tuple of two keeps its key, as for mapValues().
    paired = is_pair and not (layout.keyed and all(spec.of == "value" for _, spec in calls))
    return Mapped(kernel, frozenset(compiled - passed), whole, paired, layout.only)


def _warn(spec: MapSpec, layout: RecordLayout, signature: Signature, whole: bool) -> None:
    """Warn, once a function and form of records, of one that may mean something else for ``map``, which passes it the
    whole record.
    """
    definition = spec.function.definition
    parts = tuple([(each.form, each.types[0] in ("bool", "int", "float")) for each in layout.parts])
    place = definition.text.file, definition.at, (layout.kind, layout.keyed, parts)
    if spec.of or whole or layout.kind == "grid" or place in _warned:
        return
    if message := _difference_to_map(spec, layout, signature):
        warnings.warn_explicit(message, MeaningWarning, definition.text.file, definition.at.line)
        _warned.add(place)


def _difference_to_map(spec: MapSpec, layout: RecordLayout, signature: Signature) -> str:
    """Return a text of what a function means for ``map`` that it does not mean here; "" if nothing is found."""
    definition = spec.function.definition
    if layout.kind == "blocks":
        axes = {each.name: len(each.shape) - 1 for each in signature.fields}
        if not same_by_rows(spec.function, spec.arguments, axes):
            return (f"{spec.label} gets the rows of arrays of shape {_shapes(signature)}, one at a time, where map() "
                    'would give it each array as a whole. Write vmap(..., of="row") for rows, or vmap(..., '
                    f'of="{"value" if layout.keyed else "record"}") for the whole')
    if layout.keyed and not layout.named and (takes_pair_apart(definition) or _means_pair(spec, layout, signature)):
        return (f"{spec.label} gets the value of each (key, value) pair, where map() would give it the pair. Write "
                'vmap(..., of="value") for the value, as for mapValues(), or vmap(..., of="record") for the pair, '
                "whose key must be a number")
    if layout.parts and layout.parts[0].form == "tuple" and _means_tuple(spec, layout, signature):
        name, word = ("mapValues", "value") if layout.keyed else ("map", "record")
        return (f"{spec.label} gets each tuple as a row of {np.dtype(signature.fields[0].dtype)}, where {name}() would "
                f'give it the tuple. Write vmap(..., of="row") for the row, or vmap(..., of="{word}") for the tuple, '
                "each item of its type")
    numbers = {each.name: each.types[0] for each in layout.parts
               if each.form == "number" and each.types[0] in ("bool", "int", "float")}
    meaning = meaning_of_numbers(spec.function, numbers) if numbers and not layout.tupled else ""
    of = "value" if layout.keyed else "record"
    return meaning and f'{spec.label} {meaning}, and vmap(..., of="{of}") to leave it so'


def _means_pair(spec: MapSpec, layout: RecordLayout, signature: Signature) -> bool:
    """Return whether a function of a pair's value would also work on the whole pair; a function that returns its
    argument as it is does not count.
    """
    definition = spec.function.definition
    match definition.body:
        case (nodes.Return(nodes.Local(name)),) if name == definition.parameters[0].name:
            return False
    if is_returned_in_dict(definition) or (layout.key and not any(each.shape[1:] for each in signature.fields)
                                           and is_given_to_numpy(definition)):
        return True
    of_pair = replace(spec, of="record")
    # Of keys that are no numbers it is enough to know that something is there.
    opened, fields = whole_pairs(replace(layout, key=layout.key or "int"), signature)
    whole = takes_whole(of_pair, opened, fields)
    return _kernel_of(spec, _element(of_pair, opened, fields, whole)) is not None


def _means_tuple(spec: MapSpec, layout: RecordLayout, signature: Signature) -> bool:
    """Return whether a function of rows is one of tuples too, and gives these something of another form or type."""
    if is_returned_in_dict(spec.function.definition):
        return True
    row = _kernel_of(spec, _element(spec, layout, signature, whole=False))
    of_tuple = replace(spec, of="value" if layout.keyed else "record")
    other = _kernel_of(spec, _element(of_tuple, layout, signature, whole=False))
    return row is not None and other is not None and (
        row.structure != other.structure or [(each.dtype, each.shape) for each in row.outputs]
        != [(each.dtype, each.shape) for each in other.outputs])


def _shapes(signature: Signature) -> str:
    return " and ".join(dict.fromkeys(str(each.shape) for each in signature.fields))


def _hint(layout: RecordLayout, signature: Signature, whole: bool) -> str:
    """Return a hint for the error of a function that does not fit the records, from the records' layout; "" if there is
    none.
    """
    if layout.kind == "blocks" and not whole:
        return (f"The records are arrays of shape {_shapes(signature)}, and the function gets their rows; "
                f'vmap(..., of="{"value" if layout.keyed else "record"}") gives it the whole')
    if layout.keyed:
        return ("The records are pairs: as with mapValues, the function gets the value, and the key stays beside what "
                'it gives; vmap(..., of="record") gives it the pair, where keys are numbers')
    return ""


def launch_of(mapped: Mapped, calls: Sequence[NumberedCall], outputs: Sequence[Field], slots: SlotTable,
              modules: ModuleTable, *, keyless: bool = False, names: Mapping[str, str] | None = None) -> Launch:
    """Return the protocol's description of a kernel.

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
    arguments = tuple([_argument(parameter, origin, slots, names or {}, mapped.item)
                       for parameter, origin in zip(kernel.parameters, _origins(kernel, calls), strict=True)])
    partials = tuple([Accumulators(each.field, each.operator, each.accumulator, each.width, each.guard)
                      for each in kernel.accumulated])
    return Launch((), (kernel.block,), kernel.shared, arguments, tuple(outputs), kernel.merge and not partials,
                  modules.add(_generated(kernel.source, label)), kernel.name, keyless, kernel.tile, kernel.waves,
                  partials, _preparation(kernel), kernel.cluster, whole=mapped.whole, workspace=kernel.workspace)


def _preparation(kernel: TableKernel) -> Preparation | None:
    first = kernel.preparation
    return Preparation(first.name, first.nbytes, (first.grid,), (first.block,)) if first else None


def label_of(calls: Sequence[NumberedCall]) -> str:
    """Return the name of a step of some calls for errors."""
    return ", ".join(spec.label for _, spec in calls)


def outputs_of(mapped: Mapped, before: Signature) -> tuple[Field, ...]:
    """Return the fields that a kernel writes of blocks of a signature."""
    stack = () if mapped.whole else before.fields[0].shape[:1]
    return tuple([Field(each.name, np.dtype(each.dtype).str, (*stack, *each.shape)) for each in mapped.kernel.outputs])


def after_map(mapped: Mapped, layout: RecordLayout, signature: Signature) -> tuple[Signature, RecordLayout]:
    """Return signature and layout of blocks after one call."""
    kernel, outputs = mapped.kernel, outputs_of(mapped, signature)
    if kernel.merge and (replaced := _flat(signature).keys() & {each.name for each in outputs}):
        raise PlanError(f"the field {min(replaced)!r} has rows of several lengths, which no result replaces: give the "
                        "result another name")
    fields = {each.name: each for each in signature.fields} if kernel.merge else {}
    after = Signature(tuple((fields | {each.name: each for each in outputs}).values()))
    result = layout.mapped(tuple((each.name, each.dtype, bool(each.shape), each.number) for each in kernel.outputs),
                           tupled=kernel.structure.kind == "tuple", merge=kernel.merge, pair=mapped.paired,
                           whole=mapped.whole)
    return after, result


def agrees(mapped: Mapped, before: Signature, after: Signature) -> bool:
    """Return whether the kernel of several calls gives the results of these calls one after the other."""
    outputs = {each.name: each for each in outputs_of(mapped, before)}
    merged = {each.name: each for each in before.fields} if mapped.kernel.merge else {}
    return (merged | outputs) == {each.name: each for each in after.fields}


def not_alike(calls: Sequence[NumberedCall], before: Sequence[tuple[RecordLayout, Signature | None]],
              inside: int | None) -> int | None:
    """Return the position at which a step must end because some calls take whole blocks and others rows; None if there
    is no such position.

    Parameters
    ----------
    before : sequence of (RecordLayout, Signature)
        What blocks are before each call.
    inside : int or None
        The position of the fold of their rows behind them, if there is one.
    """
    wholes = [(position, takes_whole(spec, layout, signature))
              for (position, spec), (layout, signature) in zip(calls, before, strict=True) if signature is not None]
    other = next((position for position, whole in wholes if whole != wholes[0][1]), None)
    return inside if other is None and any(whole for _, whole in wholes) else other


def remark(spec: MapSpec, layout: RecordLayout, signature: Signature, shared_limit: int) -> str:
    """Return the reason why the nearest centres of a call are not computed by matrix work; empty if the call finds
    none.
    """
    layout, signature = given(spec, layout, signature)
    record = _element(spec, layout, signature, takes_whole(spec, layout, signature))
    return two_pass.why_by_rows(TracedCall(spec.function, spec.values), record, shared_limit)


def leading(spec: MapSpec, signature: Signature) -> int:
    """Return the extent of the axis that a call maps over.

    Raises
    ------
    LaunchError
        If the fields differ in it.
    """
    flat = _flat(signature)
    extents = {each.shape[:1] for each in signature.fields if each.name not in flat}
    if len(extents) > 1 or () in extents:
        shapes = ", ".join(f"{each.name} {each.shape}" for each in signature.fields)
        raise LaunchError(f"vmap goes along the leading axis, which must be the same for all fields, not {shapes}",
                          Place(operation=spec.label))
    return extents.pop()[0]


def given(spec: MapSpec, layout: RecordLayout, signature: Signature) -> tuple[RecordLayout, Signature]:
    """Return layout and signature of what a call is given: where it is of whole pairs, their keys among the fields, and
    where it is of an item of kept pairs, that alone.

    Raises
    ------
    PlanError
        If it asks for keys that are no numbers.
    """
    if layout.wanted:
        return layout.item(layout.wanted), Signature(fields_in(layout.wanted, signature.fields))
    if not opens_keys(spec, layout):
        return layout, signature
    try:
        return whole_pairs(layout, signature)
    except PlanError as error:
        raise error.at(operation=spec.label) from None


def opens_keys(spec: MapSpec, layout: RecordLayout) -> bool:
    """Return whether a call is of whole pairs, whose keys a worker still has sealed."""
    return layout.keyed and spec.of == "record"


def takes_whole(spec: MapSpec, layout: RecordLayout, signature: Signature) -> bool:
    """Return whether a call takes each block as one element.

    Raises
    ------
    PlanError
        If it asks for values of what are no pairs.
    """
    if not layout.keyed and spec.of == "value":
        raise PlanError('of="value" is of pairs with keys, and these records are none: of="record" is the whole of '
                        "each, and of=\"row\" what lies along its leading axis", Place(operation=spec.label))
    if layout.kind == "elements":
        return False
    return spec.of in ("record", "value") or (layout.folded and not spec.of) \
        or not any(each.shape for each in signature.fields) \
        or (layout.kind == "blocks" and layout.named and not spec.of and _means_whole(spec, signature))


def _means_whole(spec: MapSpec, signature: Signature) -> bool:
    """Return whether a function of a dict's fields is of these as they are: where they have no leading axis in common,
    or it is none of their rows, as ``A @ b`` of a matrix and a row.
    """
    extents = {each.shape[:1] for each in signature.fields}
    if len(extents) > 1:
        return True
    return _kernel_of(spec, _record("blocks", signature, whole=False)) is None \
        and _kernel_of(spec, _record("blocks", signature, whole=True)) is not None


def _kernel_of(spec: MapSpec, element: ElementSpec) -> TableKernel | None:
    """Return the kernel of a call for elements; None if it does not go with them."""
    try:
        return fusion.fuse([TracedCall(spec.function, spec.values)], element)
    except TranslationError:
        return None


def _element(spec: MapSpec, layout: RecordLayout, signature: Signature, whole: bool) -> ElementSpec:
    """Return the element that a call gets of blocks."""
    return _record(layout.kind, signature, whole, _python(spec, layout, signature))


def _python(spec: MapSpec, layout: RecordLayout, signature: Signature) -> Mapping[str, tuple[tuple[str, bool], ...]]:
    """Return the fields that are tuples, or Python's numbers in a pair or a tuple, where a function gets these as from
    ``map``: dtype of the number or of each item of the tuple, and whether it is a Python number.
    """
    is_pair = bool(layout.key) and not layout.keyed
    if not is_pair and spec.of not in ("record", "value"):
        return {}
    widths = {each.name: each.shape[-1] for each in signature.fields if each.shape}
    types_of = {}
    for part in layout.parts:
        types = tuple([(held_as(name).name, name in BY_NAME) for name in part.types])
        if part.form == "tuple":
            types_of[part.name] = types if len(types) > 1 else types * widths[part.name]
        elif (is_pair or layout.sent) and part.form == "number" and types[0][1]:
            types_of[part.name] = types
    return types_of


def _record(kind: str, signature: Signature, whole: bool,
            python: Mapping[str, tuple[tuple[str, bool], ...]] | None = None) -> ElementSpec:
    flat, fields = _flat(signature), []
    for field in signature.fields:
        shape, items = field.shape if whole else field.shape[1:], (python or {}).get(field.name, ())
        if not field.name.endswith((STARTS, PLACES)):
            fields.append(ElementField(field.name, field.dtype, shape, flat.get(field.name, ""),
                                       bool(items) and not shape, items if shape else ()))
    return ElementSpec(tuple(fields), kind)


def _flat(signature: Signature) -> dict[str, str]:
    """Return the fields that have the items of rows of several lengths, by name, with what these rows are."""
    names = [each.name for each in signature.fields]
    starts = [name.removesuffix(STARTS) for name in names if name.endswith(STARTS)]
    forms = {name: "sparse" if name + PLACES in names else "ragged" for name in starts}
    return forms | {name + PLACES: "places" for name, form in forms.items() if form == "sparse"}


def _origins(kernel: TableKernel, calls: Sequence[NumberedCall]) -> list[ArgumentRef | None]:
    """Return the origin of each parameter's value; the kernel numbers the parameters of all calls consecutively."""
    every = {"argument": [ArgumentRef(position, "argument", number) for position, spec in calls
                          for number in range(len(spec.arguments))],
             "capture": [ArgumentRef(position, "capture", number) for position, spec in calls
                         for number in range(len(spec.captured))]}
    return [every[parameter.kind][parameter.number] if parameter.kind in every else None
            for parameter in kernel.parameters]


def _argument(parameter: KernelParameter, origin: ArgumentRef | None, slots: SlotTable,
              names: Mapping[str, str], item: str) -> Argument:
    if origin is None:
        name = names.get(parameter.name, parameter.name)
        return In(full_name(item, parameter.name)) if parameter.kind == "input" else Out(name)
    return ArrayArgument(slots.slot(origin)) if parameter.pointer else ValueArgument(slots.slot(origin))


@functools.lru_cache(maxsize=512)
def _generated(source: str, label: str) -> Kernels:
    return Kernels(source, file=f"{label.replace(', ', '-then-').replace(' ', '-')}.cu")
