"""Recorded calls on a grid: loops of stencils, and which operations need fresh halos."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from vispark.errors import PlanError
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.map_call import MapSpec, record_map
from vispark.plan.slots import ArgumentRef
from vispark.translate.ir.nodes import Constant

#: How often to look for NaN and infinities where nothing is said of it but that it should be done.
_CHECKED = 100


def reaches_out(spec: MapSpec) -> bool:
    """Return whether a function reads neighbours of its cell."""
    return spec.function.definition.reaches_out


@dataclass(frozen=True)
class LoopSpec:
    """One recorded call of ``iterate``, or a part of it; hashable, equal by content.

    Attributes
    ----------
    phases : tuple of MapSpec
        What a step does, in order.
    steps : int
        How many of them, at most.
    done : int
        How many came before these in the same loop.
    until : float
        Stop where no cell changed by more in a step; below 0, never.
    every : int
        After how many steps to see whether to stop.
    check : int
        After how many steps to look for NaN and infinities; 0, never.
    """

    phases: tuple[MapSpec, ...]
    steps: int
    done: int = 0
    until: float = -1.0
    every: int = 1
    check: int = 0

    @property
    def label(self) -> str:
        """The loop's name in errors and plans."""
        return "iterate " + ", ".join(phase.label.removeprefix("vmap ") for phase in self.phases)

    @property
    def most_at_once(self) -> int:
        """The most steps that may be done at once: those between two steps with a test."""
        most = self.steps if self.until < 0 else min(self.steps, self.every - 1)
        return max(1, min(most, self.check) if self.check > 0 else most)

    @property
    def depends(self) -> bool:
        """Whether the number of steps depends on the values of cells."""
        return self.until >= 0 or self.check > 0

    @property
    def period(self) -> int:
        """The number of steps after which the loop's tests repeat."""
        return math.lcm(self.every if self.until >= 0 else 1, self.check or 1)

    @property
    def counted(self) -> int:
        """The number of earlier steps, as far as it decides after which steps tests run."""
        return self.done % self.period

    @cached_property
    def phases_key(self) -> tuple[Any, ...]:
        """The cache key of a step: its phases, without the arguments' values."""
        return tuple([phase.shape_key() for phase in self.phases])

    @cached_property
    def _values(self) -> dict[str, list[Constant]]:
        """The arguments and captures of all phases, phase by phase."""
        return {"argument": [each for phase in self.phases for each in phase.arguments],
                "capture": [each for phase in self.phases for each in phase.captured]}

    def shape_key(self) -> tuple[Any, ...]:
        """Return the cache key of the loop in plans: all but the arguments' values."""
        return self.phases_key, self.steps, self.counted, self.until, self.every, self.check

    def value(self, origin: ArgumentRef) -> ArrayValue:
        """Return an argument or a capture, numbered over all phases; or the number of earlier steps."""
        if origin.kind == "done":
            return ArrayValue("<i8", (), np.int64(self.done).tobytes())
        argument = self._values[origin.kind][origin.number]
        return ArrayValue(argument.dtype, argument.shape, argument.data)

    def part(self, steps: int, done: int) -> LoopSpec:
        """Return the loop of some of the steps."""
        spec = replace(self, steps=steps, done=done)
        spec.__dict__.update(phases_key=self.phases_key, _values=self._values)     # which are the same
        return spec


def record_loop(function: Callable[..., Any] | Sequence[tuple[Any, ...]], arguments: tuple[Any, ...], steps: Any,
                until: Any, every: Any, check: Any) -> LoopSpec:
    """Record a call of ``iterate``.

    Raises
    ------
    PlanError
        If the phases, the steps or the conditions are not what they can be.
    TranslationError
        If a function has what the language lacks, at its line.
    """
    phases = _phases(function, arguments)
    if until is not None and (isinstance(until, bool) or not isinstance(until, Real) or not float(until) >= 0):
        raise PlanError(f"until={until!r}; it is the change of a cell below which a loop ends, 0 or more")
    checked = _CHECKED * check if isinstance(check, bool) else _whole("check", check, 0)
    return LoopSpec(tuple(record_map(each, values) for each, values in phases), _whole("steps", steps, 0), 0,
                    -1.0 if until is None else float(until), _whole("every", every, 1), checked)


def _phases(function: Any, arguments: tuple[Any, ...]) -> list[tuple[Any, tuple[Any, ...]]]:
    if callable(function):
        return [(function, arguments)]
    if not isinstance(function, list | tuple) or not function:
        raise PlanError(f"iterate takes a stencil and its arguments, or a list of (stencil, arguments); not "
                        f"{function!r}")
    if arguments:
        raise PlanError("iterate takes a list of phases, or a function and its arguments; the arguments of phases "
                        "stand beside them, as in [(first, (0.1,)), (second, ())]")
    phases = []
    for phase in function:
        call = phase if isinstance(phase, tuple) else (phase, ())
        if len(call) != 2 or not callable(call[0]) or not isinstance(call[1], tuple | list):
            raise PlanError(f"a phase of iterate is {phase!r}; it is a function, or a pair of it and a tuple of its "
                            "arguments")
        phases.append((call[0], tuple(call[1])))
    return phases


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PlanError(f"{name}={value!r}; it is a whole number of at least {least}")
    return int(value)
