"""Functions of a block of rows made functions of one row, where that is provably the same.

The function's syntax tree is walked with the shape of each value: what it does along the rows' axis falls away, and
what sums over it becomes the row's term of a sum, which ``vreduce`` brings together.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import Broadcast

from vispark.migrate.source.block_reader import BlockReader, RowDefinitions, RowValue, named_row_function, parameters
from vispark.migrate.source.program import RddCall, SourceProgram
from vispark.migrate.source.row_shapes import BlockShape, NotRows

#: Types of numbers of which sums over rows are sums of the rows' terms; NumPy sums narrower integers in wider ones.
_SUMMED = frozenset(["float32", "float64", "int64", "uint64", "complex64", "complex128"])


@dataclass(frozen=True)
class FunctionOfRow:
    """Function of one row in place of one of a block.

    Attributes
    ----------
    text : str
        The function for ``vmap``: a name or a lambda.
    fold : str
        The function for the ``vreduce`` behind it; empty where the result has a value for each row.
    definitions : dict of FunctionDef to str
        Functions of the program with the source of their row functions, which are named ``..._row``.
    """

    text: str
    fold: str
    definitions: dict[ast.FunctionDef, str]


def axes_around(function: Any) -> dict[str, int]:
    """Return the numbers of axes of what a function, and those that it calls, find around them or have as defaults.

    A name that stands for values of several numbers of axes is left out.

    Examples
    --------
    >>> w = np.zeros((3, 2))
    >>> axes_around(lambda m: m @ w), axes_around(lambda m, v=w: m @ v)
    ({'w': 2}, {'v': 2})
    """
    ranks, several = dict[str, int](), set[str]()
    todo, seen = [function], []
    while todo:
        one = todo.pop()
        if not isinstance(one, types.FunctionType) or one in seen:
            continue
        seen.append(one)
        cells = dict(zip(one.__code__.co_freevars, one.__closure__ or (), strict=True))
        around = defaults_of(one)
        for name in (*one.__code__.co_names, *cells):
            with suppress(KeyError, ValueError):
                around.setdefault(name, cells[name].cell_contents if name in cells else one.__globals__[name])
        for name, value in around.items():
            if isinstance(value, Broadcast):
                name, value = f"{name}.value", value.value
            if isinstance(value, int | float | complex | np.generic | np.ndarray) \
                    and ranks.setdefault(name, np.ndim(value)) != np.ndim(value):
                several.add(name)
            todo.append(value)
    return {name: axes for name, axes in ranks.items() if name not in several}


def defaults_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the defaults of a function's parameters by their names, without those that are given by name alone."""
    code, values = function.__code__, function.__defaults__ or ()
    return dict(zip(code.co_varnames[code.co_argcount - len(values):code.co_argcount], values, strict=True))


def rows_of(program: SourceProgram, call: RddCall, ranks: Mapping[str, int],
            records: Sequence[Any]) -> FunctionOfRow | str:
    """Return the row function of a ``map`` of blocks, or the reason why there is none.

    Parameters
    ----------
    call : RddCall
        The ``map``.
    ranks : mapping of str to int
        As :func:`axes_around` gives them.
    records : sequence
        Some of the blocks; none if they are not known.
    """
    if len(call.node.args) != 1 or call.method != "map":
        return "only map of one function is taken apart"
    if not records:
        return "what its records are is not known; record a run"
    if not all(isinstance(each, np.ndarray) and each.ndim == 2 for each in records):
        return "its records are no arrays of two axes"
    if not {str(each.dtype) for each in records} <= _SUMMED:
        return f"NumPy sums {records[0].dtype} in a wider type"
    try:
        return row_function(program, call.node.args[0], ranks)
    except NotRows as reason:
        return str(reason)


def row_function(program: SourceProgram, function: ast.expr, ranks: Mapping[str, int], axes: int = 2) -> FunctionOfRow:
    """Return the row function of a function of blocks.

    Parameters
    ----------
    program : SourceProgram
        The program, whose functions may be called.
    function : ast.expr
        A lambda, or the name of a function of the program.
    ranks : mapping of str to int
        Axes of the arrays and numbers from around the functions, by name.
    axes : int
        Axes of a block, of which the first goes along the rows.

    Raises
    ------
    NotRows
        If it is not provably the same.

    Examples
    --------
    >>> program = SourceProgram("job.py", "f = lambda m: m[:, 1:].T @ (m[:, 1:] @ w - m[:, 0])")
    >>> found = row_function(program, program.tree.body[0].value, {"w": 1})
    >>> found.text, found.fold
    ('lambda m: m[1:] * (m[1:] @ w - m[0])', 'lambda a, b: a + b')
    """
    shared = RowDefinitions(program, ranks)
    block = BlockShape(axes, -axes)
    if isinstance(function, ast.Lambda):
        reader = BlockReader(shared, parameters(shared, function.args, [block], "it"), function.args.args[0].arg)
        value = reader.value(function.body)
        text = ast.unparse(ast.fix_missing_locations(ast.Lambda(function.args, value.node)))
    elif isinstance(function, ast.Name) and function.id in program.functions:
        text, value = named_row_function(shared, program.functions[function.id], [block])
    else:
        raise NotRows("it is no function of the program's file")
    return FunctionOfRow(text, _fold(value), dict(shared.made))


def _fold(value: RowValue) -> str:
    """Return the fold of a function's result; empty where there is one value for each row."""
    if all(each.shape.is_sum for each in _leaves(value)):
        return f"lambda a, b: {_joined(value, 'a', 'b')}"
    if all(each.shape.rows is not None and each.shape.rows == -each.shape.ndim for each in _leaves(value)):
        return ""
    raise NotRows("its result is neither a sum over the rows, nor has it a value for each of them along the first axis")


def _leaves(value: RowValue) -> list[RowValue]:
    return [leaf for part in value.parts for leaf in _leaves(part)] if value.parts else [value]


def _joined(value: RowValue, first: str, second: str) -> str:
    if not value.parts:
        return f"{first} + {second}"
    parts = [_joined(part, f"{first}[{i}]", f"{second}[{i}]") for i, part in enumerate(value.parts)]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


