"""Limits of classes: their public methods and attributes, inherited ones among them, and how deep they inherit.

A file is split by idea and never to meet a count of lines, and no class is cut into mixins that are one object in many
files: so what is counted is the class with all that it inherits from classes of the repository. Functions of other
modules that a class gives names to, as :class:`vispark.VRDD` does, are no part of it: they see what the class is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.policy import rules

#: The most public methods and attributes of a class, and classes of ours that it inherits from one through the other.
METHODS, ATTRIBUTES, DEPTH = 25, 16, 3

#: Attributes that PySpark sets in an RDD and reads: a class that stands for one has them whatever it is.
OF_AN_RDD = frozenset(("ctx", "partitioner", "is_cached", "is_checkpointed", "has_resource_profile"))

#: Classes that are above, by the most public methods and attributes that each may have, and why. No class is to be
#: added; one that comes below the limits is taken out.
ABOVE: dict[str, tuple[int, int]] = {
    # What a device does for launches, memory, order and time: one interface, which kernels and copies use together. A
    # contract suite runs on each kind (tests/device/test_contract.py).
    "Device": (30, 16), "NullDevice": (30, 16), "HostDevice": (30, 16),
    # The same with a context of CUDA, its memory pool and its peers.
    "CudaDevice": (32, 27),
}


@dataclass(frozen=True)
class Measured:
    """A class of the repository, with what its own body has."""

    path: str
    line: int
    bases: tuple[str, ...]
    methods: frozenset[str]
    attributes: frozenset[str]


def classes(sources: Mapping[str, str]) -> dict[str, Measured]:
    """Return all classes of files; no two have one name, as another test says."""
    return {node.name: Measured(path, node.lineno, tuple(map(_last_name, node.bases)), frozenset(_methods(node)),
                                frozenset(_attributes(node)))
            for path, source in sources.items() for node in rules.nodes(source) if isinstance(node, ast.ClassDef)}


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _methods(node: ast.ClassDef) -> Iterator[str]:
    """Public methods; a property is an attribute."""
    for one in node.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("_") \
                and "property" not in map(_last_name, one.decorator_list):
            yield one.name


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield attributes of self that its methods assign."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name) \
                and one.value.id == "self" and one.attr not in OF_AN_RDD:
            yield one.attr


def whole(name: str, known: Mapping[str, Measured]) -> tuple[set[str], set[str], int]:
    """Public methods and attributes of a class with those that it inherits, and its depth."""
    one = known[name]
    methods, attributes, depth = set(one.methods), set(one.attributes), 0
    for base in one.bases:
        if base in known and base != name:
            theirs = whole(base, known)
            methods |= theirs[0]
            attributes |= theirs[1]
            depth = max(depth, theirs[2] + 1)
    return methods, attributes, depth


def too_large(sources: Mapping[str, str], above: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Yield classes above the limits, and those that no longer need to be in the list of them."""
    known = classes(sources)
    for name, one in known.items():
        methods, attributes, depth = whole(name, known)
        most = above.get(name, (METHODS, ATTRIBUTES))
        if len(methods) > most[0]:
            yield f"{one.path}:{one.line} {name} has {len(methods)} public methods, more than {most[0]}"
        if len(attributes) > most[1]:
            yield f"{one.path}:{one.line} {name} has {len(attributes)} attributes, more than {most[1]}"
        if depth > DEPTH:
            yield f"{one.path}:{one.line} {name} inherits {depth} deep, more than {DEPTH}"
        if name in above and len(methods) <= METHODS and len(attributes) <= ATTRIBUTES:
            yield f"{one.path}:{one.line} {name} is within the limits; take it out of ABOVE"
