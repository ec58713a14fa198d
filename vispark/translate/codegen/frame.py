"""Frames of calls: the variables, loops and returns of the function that is being written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vispark.translate.ir import nodes
from vispark.translate.ir.liveness import NameSet
from vispark.translate.ir.values import Number, Type, Value

Variables = dict[str, Value]
#: A loop over a tuple of more items than this is not written out.
UNROLLED = 64


@dataclass
class CallFrame:
    """Frame of one call of a function.

    ``mutated`` are the names of arrays that the body writes to, ``uses`` how often it reads each name. ``outer`` is the
    frame around a nested function, ``loops`` are those that are being written, ``depth`` is the number of calls around.
    """

    definition: nodes.Definition
    variables: Variables
    mutated: frozenset[str] = frozenset()
    uses: dict[str, int] = field(default_factory=dict)
    outer: CallFrame | None = None
    returns: Returns | None = None
    loops: list[OpenLoop] = field(default_factory=list)
    depth: int = 0


@dataclass
class OpenLoop:
    """A loop that is being written.

    ``wanted`` are the names that its turns change and that may be read at its head or after it; ``carried`` the C++
    variables that hold them between turns; ``seen`` the types that they had at the ends of turns; ``missing`` those
    without a value at the end of some turn, or at some ``break``.
    """

    wanted: NameSet
    head: NameSet
    after: NameSet
    carried: Variables = field(default_factory=dict)
    seen: dict[str, Type] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    missing_at_break: set[str] = field(default_factory=set)
    broke: str = ""


@dataclass
class Returns:
    """Handler of a call's ``return`` statements.

    ``keep`` takes the value of each; ``jumps`` says that C++ has to return there, as more would follow. ``tests`` are
    those of the ifs around them.
    """

    keep: Callable[[Value], None]
    jumps: bool = False
    seen: Type | None = None
    tests: tuple[Number, ...] = ()
