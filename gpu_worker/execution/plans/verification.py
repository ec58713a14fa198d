"""Verification of plans before they run: that all names are defined, and that shapes, types and slots agree.

A plan comes from a client, whose defects, or whose ill will, are answered by a :class:`PlanError` that says what was
wrong. It is looked at once, when it comes; what depends on the values and the VRDDs of one pass is looked at by
:func:`verify_request`, and what depends on the partitions held by the steps themselves. What is right for one kind of
step its handler knows (:mod:`gpu_worker.execution.steps`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpu_worker.device.memory.grid.patches import lattice_of
from gpu_worker.execution.passes.step_handlers import StepHandler
from gpu_worker.execution.plan_checks import dtype_of, require
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import GridShape
from gpu_worker.protocol.messages import (
    Argument,
    ArrayArgument,
    Field,
    Input,
    Launch,
    Out,
    Plan,
    Run,
    ScalarArgument,
    StencilLaunch,
    ValueArgument,
    Variant,
)

#: The most bytes that one array can be meant to have.
_MOST_BYTES = 1 << 60
#: As many axes as NumPy's arrays have in all its versions.
_MOST_AXES = 32


def verify(plan: Plan, steps: Sequence[StepHandler[Any]]) -> None:
    """Verify a plan.

    Parameters
    ----------
    plan : Plan
        As it came.
    steps : sequence of StepHandler
        The handlers of its steps.

    Raises
    ------
    PlanError
        If a part of it names another one that is not there, or two do not fit together.

    Examples
    --------
    >>> from gpu_worker.protocol.plans import PutStep
    >>> from gpu_worker.execution.steps import handlers_of
    >>> plan = Plan((PutStep(),), (), (), (Input(0, 1, 0, 0, b"", (2,)),), ())
    >>> verify(plan, handlers_of(plan))
    Traceback (most recent call last):
    gpu_worker.protocol.errors.PlanError: partition 0 has a block of variant 2, and the plan has 0 variants
    """
    for module in plan.modules:
        require(len(module.constants) == len(module.constant_names),
                f"{module.file} has {len(module.constants)} values for {len(module.constant_names)} constants")
    if plan.grid is not None:
        lattice_of(plan.grid)
        for launch in plan.stencils:
            _verify_stencil(plan, plan.grid, launch)
    for step in steps:
        step.verify(plan)
    for variant in plan.variants:
        _verify_variant(plan, variant, steps)
    _verify_inputs(plan)


def slots_of(plan: Plan, steps: Iterable[StepHandler[Any]]) -> int:
    """Return the number of VRDDs that a request of this plan has to bring; a step that lacks a value raises its own
    error.

    Raises
    ------
    PlanError
        If a slot is negative.
    """
    vrdds = [slot for step in steps for slot in step.vrdds]
    used = {launch.module for launch in _launches(plan)}
    values = [slot for number in used for slot in plan.modules[number].constants]
    values += [slot for launch in _launches(plan) for slot in _slots(launch.arguments)]
    require(min(vrdds, default=0) >= 0 and min(values, default=0) >= 0, "a plan names a slot below 0")
    return max(vrdds, default=-1) + 1


def verify_request(request: Run, slots: int) -> None:
    """Verify that a request brings the VRDDs that its plan names. Raises PlanError if it does not."""
    if len(request.vrdds) < slots:
        raise PlanError(f"the plan names VRDD {slots - 1} of the request, which brings {len(request.vrdds)}")


# -- parts ------------------------------------------------------------------------------------------------------------

def _launches(plan: Plan) -> Iterator[Launch | StencilLaunch]:
    for variant in plan.variants:
        yield from variant.launches
    yield from plan.stencils


def _slots(arguments: Iterable[Argument]) -> list[int]:
    return [argument.slot for argument in arguments if isinstance(argument, ValueArgument | ArrayArgument)]


# -- stencils ---------------------------------------------------------------------------------------------------------

def _verify_stencil(plan: Plan, grid: GridShape, launch: StencilLaunch) -> None:
    axes, ghosts = len(grid.shape), grid.ghosts or grid.halo
    _verify_module(plan, launch.module)
    _verify_arguments(launch.arguments)
    require(bool(launch.outputs), "a stencil writes a field or more")
    for described in launch.outputs:
        require(not described.shape, "what a stencil writes is of a cell's shape, which is ()")
        dtype_of(described.dtype)
    require(len(launch.below) == len(launch.above) == axes, f"a stencil says how far it reads along {axes} axes")
    require(all(0 <= each <= most for widths in (launch.below, launch.above)
                for each, most in zip(widths, ghosts, strict=True)),
            f"a stencil reads ghost cells, of which there are {ghosts}")
    require(len(launch.block) == len(launch.tile) == 3 and min(*launch.block, *launch.tile) >= 1,
            "a stencil's block and tile are three numbers from 1 on")
    require(-1 <= launch.dealt < 3 and launch.shared >= 0, "a stencil's dealt axis is -1, 0, 1 or 2")


# -- variants and launches --------------------------------------------------------------------------------------------

def _verify_variant(plan: Plan, variant: Variant, steps: Sequence[StepHandler[Any]]) -> None:
    keeps = sum(step.keeps for step in steps)
    require(min(len(variant.layouts), len(variant.counts)) >= keeps,
            f"a variant has {len(variant.layouts)} layouts and {len(variant.counts)} counts for {keeps} values to keep")
    require(min(variant.counts, default=0) >= -1, "a variant's counts are numbers of records, or -1")
    for described in variant.signature.fields:
        _verify_field(described)
    launching = [step for step in steps if step.has_launches]
    require(len(variant.launches) == len(launching),
            f"a variant has {len(variant.launches)} launches for {len(launching)} steps")
    for step, launch in zip(launching, variant.launches, strict=True):
        _verify_launch(plan, launch)
        step.verify_launch(launch)


def _verify_field(described: Field) -> None:
    size = dtype_of(described.dtype).itemsize
    require(len(described.shape) <= _MOST_AXES and min(described.shape, default=0) >= 0,
            f"an array has 0 to {_MOST_AXES} axes of 0 or more items, not {described.shape[:8]}")
    require(math.prod([max(extent, 1) for extent in described.shape]) * size <= _MOST_BYTES,
            f"an array has at most {_MOST_BYTES:,} bytes, and its shape is {described.shape}")


def _verify_module(plan: Plan, number: int) -> None:
    require(0 <= number < len(plan.modules),
            f"a launch is of module {number}, and the plan has {len(plan.modules)}")


def _verify_arguments(arguments: Sequence[Argument]) -> None:
    for argument in arguments:
        if isinstance(argument, ScalarArgument):
            size = dtype_of(argument.dtype, is_argument=True).itemsize
            require(len(argument.value) == size,
                    f"a scalar of {argument.dtype} has {len(argument.value)} bytes, not {size}")


def _verify_launch(plan: Plan, launch: Launch) -> None:
    _verify_module(plan, launch.module)
    _verify_arguments(launch.arguments)
    for described in launch.outputs:
        _verify_field(described)
    names = [described.name for described in launch.outputs]
    require(len(set(names)) == len(names), f"a launch writes fields of one name: {names[:8]}")
    written = [argument.field for argument in launch.arguments if isinstance(argument, Out)]
    require(set(written) <= set(names),
            f"a kernel writes {sorted(set(written) - set(names))[:8]}, and the launch leaves {names[:8]}")
    require(launch.tile >= 0 and launch.cluster >= 1 and launch.shared >= 0 and 0 <= launch.waves < math.inf,
            "a launch's tile, cluster, shared memory and waves are no numbers below 0")
    for number in launch.initial:
        require(len(number) in (0, 1, 2, 4, 8, 16), f"a number that fills an array has {len(number)} bytes")
    require(0 <= launch.workspace <= _MOST_BYTES, "the memory of a thread has no bytes below 0")
    if launch.preparation is not None:
        require(0 <= launch.preparation.nbytes <= _MOST_BYTES, "what a preparation makes has no bytes below 0")
    for partial in launch.partials:
        require(1 <= partial.width <= _MOST_BYTES, f"a partial has {partial.width} accumulators")


# -- partitions -------------------------------------------------------------------------------------------------------

def _verify_inputs(plan: Plan) -> None:
    variants, blocks = len(plan.variants), 0
    if plan.grid is not None:
        blocks = math.prod(plan.grid.splits)
    for part in plan.inputs:
        _verify_input(part, variants, blocks)
    # What is made of them is told apart by their numbers.
    require(len({part.partition for part in plan.inputs}) == len(plan.inputs), "a plan has a partition twice")
    places = [place for part in plan.inputs for place in part.positions]
    require(not blocks or len(set(places)) == len(places), "a plan has a block of the grid twice")


def _verify_input(part: Input, variants: int, blocks: int) -> None:
    if part.blocks and not 0 <= min(part.blocks) <= max(part.blocks) < variants:
        wrong = next(each for each in part.blocks if not 0 <= each < variants)
        raise PlanError(f"partition {part.partition} has a block of variant {wrong}, and the plan has {variants} "
                        "variants")
    if min(part.count, part.keys, part.offset) < 0:
        raise PlanError(f"partition {part.partition} has a count, keys or an offset below 0")
    if blocks and len(part.positions) != len(part.blocks):
        raise PlanError(f"partition {part.partition} has {len(part.blocks)} blocks of the grid at "
                        f"{len(part.positions)} places")
    if blocks and part.positions and not 0 <= min(part.positions) <= max(part.positions) < blocks:
        raise PlanError(f"partition {part.partition} has a block at {max(part.positions)}, and the grid has {blocks}")
