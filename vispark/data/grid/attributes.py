"""Attributes of files that describe a grid: splits, halo, boundary and fields, as JSON has them."""

from __future__ import annotations

import cmath
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import PlanError
from vispark.data.grid.boundary import function_name
from vispark.data.grid.spec import FUNCTION, NUMBER, Edge, GridSpec

#: The attribute's name.
NAME = "vispark"
#: What a field is called in files that has no name in its grid.
CELLS = "cells"
#: The names of axes, the last one that of contiguous cells.
AXES = ("z", "y", "x")


def attributes_of(description: GridSpec, fields: Mapping[str, np.dtype]) -> dict[str, Any]:
    """Return the attributes of a grid that is saved.

    Parameters
    ----------
    description : GridSpec
        The grid.
    fields : mapping of str to dtype
        Its fields; "" where the only one has no name.
    """
    return {"shape": list(description.shape), "splits": list(description.splits), "halo": list(description.halo),
            "boundary": {each.field: list(map(_written, each.edges)) for each in description.edges},
            "fields": {name: dtype.str for name, dtype in fields.items()}, "saved": uuid.uuid4().hex}


def of_field(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the attributes of one field of a grid that was saved, as of a grid whose field has no name.

    Examples
    --------
    >>> of_field({"shape": [4], "fields": {"p": "<f4", "q": "<f8"}, "boundary": {"p": [], "q": []}}, "q")
    {'shape': [4], 'fields': {'': '<f8'}, 'boundary': {'': []}}
    """
    boundary = attributes["boundary"]
    return {**attributes, "fields": {"": attributes["fields"][name]},
            "boundary": {"": boundary[name if name in boundary else ""]}}


def _written(edge: Edge) -> dict[str, Any]:
    if edge.rule == NUMBER:
        return {"number": _number_written(edge.number), "dtype": edge.dtype}
    return {"function": function_name(edge.function)} if edge.rule == FUNCTION else {"rule": edge.rule}


def _number_written(number: Any) -> Any:
    """Return a number as JSON has it: a complex one as its parts, and as text what is not finite."""
    value = number.item()
    if isinstance(value, complex):
        return [_number_written(np.float64(part)) for part in (value.real, value.imag)]
    return value if cmath.isfinite(value) else str(value)


def arguments_of(attributes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the arguments of Grid that attributes describe, ``boundary`` and ``fields`` where there are such.

    Raises
    ------
    PlanError
        If they are not what :func:`attributes_of` gives.
    """
    try:
        fields = {name: dtype for name, dtype in attributes["fields"].items() if name}
        arguments = {"shape": tuple(attributes["shape"]), "splits": tuple(attributes["splits"]),
                     "halo": tuple(attributes["halo"]), "fields": fields or None}
        sides = {name: [_read(edge) for edge in edges] for name, edges in attributes["boundary"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"the attribute {NAME!r} of {path} does not describe a grid: {type(error).__name__}: {error}; "
                        "give Grid its shape and its splits") from error
    unknown = [name for name, edges in sides.items() if None in edges]
    if not unknown:
        boundary = {name: _by_axes(edges) for name, edges in sides.items()}
        arguments["boundary"] = boundary.get("", boundary)
    return arguments


def _read(edge: Mapping[str, Any]) -> Any:
    """Return a side's rule or number; None for a function, of which a file has the name alone."""
    if "function" in edge:
        return None
    if "rule" in edge:
        return edge["rule"]
    number = edge["number"]
    parts = [float(part) for part in number] if isinstance(number, list) else [number]
    value: Any = complex(*parts) if isinstance(number, list) else float(number) if isinstance(number, str) else number
    return np.array(value, edge["dtype"])[()]


def _by_axes(edges: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((edges[at], edges[at + 1]) for at in range(0, len(edges), 2))
