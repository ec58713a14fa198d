"""Specifications of folds that kernels support: an operator for each part of a record, read from a function of two
records.
"""

from __future__ import annotations

import builtins
import functools
import operator
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_worker.protocol.fold_operators import operator_of, operators
from gpu_worker.protocol.messages import FieldFold
from vispark._utils.hashing import hashed_once
from vispark._utils.lazy import LazyModule
from vispark.errors import PlanError
from vispark.plan.fold.each_item import EACH, item_join, meanings
from vispark.plan.fold.reading import BINARY, LIBRARY, JoinedPart, Leaf, Unreadable, join_of
from vispark.translate import TranslationError
from vispark.translate.ir.nodes import Definition

if TYPE_CHECKING:
    from vispark.translate.frontend import reader
else:
    reader = LazyModule("vispark.translate.frontend.reader")

_MODULES: dict[str, Any] = {"numpy": np, "operator": operator, "": builtins}


def _function(name: str) -> Callable[..., Any]:
    """Return a function by its name, as in the table of operators."""
    module, _, last = name.rpartition(".")
    function: Callable[..., Any] = getattr(_MODULES[module], last)
    return function


def function_of(name: str) -> Callable[..., Any]:
    """Return Python's function of two values for the operator of a name."""
    return _function(operator_of(name).function)


_NAMED: dict[Callable[..., Any], JoinedPart] = {
    **{_function(name): JoinedPart(*joined) for name, joined in LIBRARY.items()},
    **{_function(each.in_place): JoinedPart(each.name) for each in operators() if each.in_place}}

#: The most codes whose folds are known.
_CODES = 256

#: What can be lowered, for errors.
LOWERED = ("a fold runs on the device with +, *, &, |, ^, min, max, operator's or NumPy's functions of these, or a "
           "function of two values that joins them so, tuples part by part: lambda p, q: (p[0] + q[0], p[1] + q[1]); "
           "and with another associative function that the translator takes: lambda p, q: p if p[0] < q[0] else q")


@hashed_once
@dataclass(frozen=True)
class FoldSpec:
    """Specification of a fold of two records into one; hashable, equal by content.

    Attributes
    ----------
    leaves : tuple of Leaf
        How each part is joined. A single one at place "" joins records as a whole.
    label : str
        What plans and errors call it, such as "add" or "(add, add)".
    """

    leaves: tuple[Leaf, ...]
    label: str

    @property
    def whole(self) -> Leaf | None:
        """How records are joined as a whole, if they are."""
        return self.leaves[0] if self.leaves[0].place == "" else None

    @property
    def places(self) -> frozenset[str]:
        """The parts that the fold joins, named as in :class:`~vispark.data.records.layout.RecordLayout`."""
        return frozenset(leaf.place for leaf in self.leaves)

    def of_parts(self, places: Iterable[str]) -> FoldSpec:
        """Return the fold with one leaf for each of ``places``, if a single leaf stands for all parts of a tuple; else
        this fold.
        """
        if self.leaves[0].place != EACH:
            return self
        return replace(self, leaves=tuple([replace(self.leaves[0], place=place) for place in places]))

    def fields(self) -> tuple[FieldFold, ...]:
        """Return the protocol's records, without guards."""
        return tuple(FieldFold(leaf.place, leaf.operator) for leaf in self.leaves)


def fold_of(function: Callable[..., Any]) -> FoldSpec | str:
    """Return the fold that a function of two records computes, or why there is none.

    Parameters
    ----------
    function : callable
        Of two records; never called.

    Examples
    --------
    >>> fold_of(max).leaves
    (Leaf(place='', operator='maximum', kind='choice'),)
    >>> fold_of(print)
    'print is not one of the operators that have a kernel'
    """
    try:
        named = _NAMED.get(function)
    except TypeError:
        named = None
    if named is not None:
        return _whole(named)
    if type(function) is types.FunctionType and _is_closed(function):
        return _of_code(function)
    if not isinstance(function, types.FunctionType | functools.partial):
        return f"{getattr(function, '__name__', function)} is not one of the operators that have a kernel"
    return _traced(function)


def _is_closed(function: types.FunctionType) -> bool:
    """Return whether what a function does follows from its code alone."""
    code = function.__code__
    return not (code.co_names or code.co_freevars or function.__defaults__ or function.__kwdefaults__
                or any(isinstance(each, types.CodeType) for each in code.co_consts))


#: By code, the folds of functions that were read before; bounded.
_by_code: dict[types.CodeType, FoldSpec] = {}


def _of_code(function: types.FunctionType) -> FoldSpec | str:
    """Return the fold of a function without captured values, whose code is read once."""
    spec = _by_code.get(function.__code__)
    if spec is not None:
        return spec
    traced = _traced(function)
    if isinstance(traced, FoldSpec):
        if len(_by_code) >= _CODES:
            _by_code.pop(next(iter(_by_code)), None)
        _by_code[function.__code__] = traced
    return traced


def _traced(function: Callable[..., Any]) -> FoldSpec | str:
    join = _known_join(function)
    if join is not None:
        return join
    try:
        definition = reader.trace(function).definition
    except TranslationError as error:
        return _each(function) or str(error)
    spec = _read(definition)
    return _each(function) or spec if isinstance(spec, str) else spec


#: By code, the folds of functions that join tuples item by item by an operator, and what names stood for; bounded.
_joins_by_code: dict[types.CodeType, tuple[FoldSpec, list[Any]]] = {}


def _known_join(function: Callable[..., Any]) -> FoldSpec | None:
    """Return the fold of a function that was seen to join tuples item by item, whose names stand for the same."""
    if type(function) is not types.FunctionType:
        return None
    spec, meant = _joins_by_code.get(function.__code__, (None, []))
    return spec if spec is not None and all(map(operator.is_, meant, meanings(function))) else None


def _each(function: Callable[..., Any]) -> FoldSpec | None:
    """Return the fold of a function that joins tuples item by item, whatever their number."""
    joined = item_join(function)
    if isinstance(joined, str):
        spec = _of_each(Leaf(EACH, BINARY[joined]))
        if isinstance(function, types.FunctionType):
            if len(_joins_by_code) >= _CODES:
                _joins_by_code.pop(next(iter(_joins_by_code)), None)
            _joins_by_code[function.__code__] = spec, meanings(function)
        return spec
    named = fold_of(joined) if callable(joined) else None
    if not isinstance(named, FoldSpec) or named.whole is None:
        return None
    return _of_each(replace(named.whole, place=EACH))


@functools.cache
def _of_each(leaf: Leaf) -> FoldSpec:
    """Return the fold of tuples of any length, each item of which is joined alike."""
    return FoldSpec((leaf,), f"({leaf.operator}, ...)")


@functools.cache
def _whole(named: JoinedPart) -> FoldSpec:
    """Return the fold of records as a whole by an operator."""
    return FoldSpec((Leaf("", named.operator, named.kind),), named.operator)


def fold_for_kernel(function: Callable[..., Any], operation: str) -> FoldSpec:
    """Return the fold with a function, for an operation that never runs in Python.

    Raises
    ------
    PlanError
        If there is none.
    """
    spec = fold_of(function)
    if isinstance(spec, FoldSpec) and spec.leaves[0].place == EACH:
        spec = f"{spec.label} is of tuples"
    if isinstance(spec, str):
        raise PlanError(f"{operation} cannot run on the device: {spec}. What can: {LOWERED}")
    return spec


@functools.lru_cache(maxsize=256)
def _read(definition: Definition) -> FoldSpec | str:
    try:
        leaves = join_of(definition)
    except Unreadable as error:
        return f"{definition.name} {error}"
    label = ", ".join(leaf.operator for leaf in leaves)
    return FoldSpec(leaves, label if leaves[0].place == "" else f"({label})")
