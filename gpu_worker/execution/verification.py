"""Verification of plans before they run: that all names are defined, and that shapes, types and slots agree.

A plan comes from a client, whose defects, or whose ill will, are answered by a :class:`PlanError` that says what was
wrong. It is looked at once, when it comes; what depends on the values and the VRDDs of one pass is looked at by
:func:`verify_request`, and what depends on the partitions held by the steps themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from gpu_worker.memory.grid.patches import lattice_of
from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Halo, IterateStep, Phase, StencilStep, WindowStep
from gpu_worker.protocol.messages import (
    Accumulators,
    Argument,
    ArgumentValue,
    ArrayArgument,
    ExecStep,
    FetchStep,
    Field,
    FieldFold,
    FoldByKeyStep,
    FoldInsideStep,
    FoldStep,
    Input,
    KeepStep,
    Launch,
    LoadStep,
    MapFoldStep,
    Out,
    Plan,
    Run,
    ScalarArgument,
    StencilLaunch,
    Step,
    Value,
    Variant,
)

#: The most bytes that one array, and the most keys that one fold, can be meant to have.
_MOST_BYTES = 1 << 60
_MOST_KEYS = 1 << 31
#: As many axes as NumPy's arrays have in all its versions.
_MOST_AXES = 32
#: Kinds of numbers that kernels know.
_KINDS = "biufc"

_OVER = ("rows", "blocks")
_RULES = ("periodic", "mirrored", "given")


def verify(plan: Plan) -> None:
    """Verify a plan.

    Parameters
    ----------
    plan : Plan
        As it came.

    Raises
    ------
    PlanError
        If a part of it names another one that is not there, or two do not fit together.

    Examples
    --------
    >>> from gpu_worker.protocol.plans import PutStep
    >>> verify(Plan((PutStep(),), (), (), (Input(0, 1, 0, 0, b"", (2,)),), ()))
    Traceback (most recent call last):
    gpu_worker.protocol.errors.PlanError: partition 0 has a block of variant 2, and the plan has 0 variants
    """
    for module in plan.modules:
        _wrong_unless(len(module.constants) == len(module.constant_names),
                      f"{module.file} has {len(module.constants)} values for {len(module.constant_names)} constants")
    if plan.grid is not None:
        lattice_of(plan.grid)
        for launch in plan.stencils:
            _verify_stencil(plan, plan.grid, launch)
    for step in plan.steps:
        _verify_step(plan, step)
    for variant in plan.variants:
        _verify_variant(plan, variant)
    _verify_inputs(plan)


def slots_of(plan: Plan) -> int:
    """Return the number of VRDDs that a request of this plan has to bring; a step that lacks a value raises its own
    error.

    Raises
    ------
    PlanError
        If a slot is negative.
    """
    vrdds = [step.slot for step in plan.steps if isinstance(step, LoadStep | KeepStep)]
    used = {launch.module for launch in _launches(plan)}
    values = [slot for number in used for slot in plan.modules[number].constants]
    values += [slot for launch in _launches(plan) for slot in _slots(launch.arguments)]
    values += [side.values for halo in _halos(plan) for side in halo.sides if side.rule == "given" and side.values >= 0]
    values += [step.counted for step in plan.steps if isinstance(step, IterateStep) and step.counted >= 0]
    _wrong_unless(min(vrdds, default=0) >= 0 and min(values, default=0) >= 0, "a plan names a slot below 0")
    return max(vrdds, default=-1) + 1


def verify_request(request: Run, slots: int) -> None:
    """Verify that a request brings the VRDDs that its plan names. Raises PlanError if it does not."""
    if len(request.vrdds) < slots:
        raise PlanError(f"the plan names VRDD {slots - 1} of the request, which brings {len(request.vrdds)}")


@lru_cache(maxsize=256)
def dtype_of(text: str, *, is_argument: bool = False) -> np.dtype:
    """Return the dtype that a message names: of numbers, or for an argument of anything that is bytes alone.

    Raises
    ------
    PlanError
        If it is none that devices know.
    """
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise PlanError(f"{text[:40]!r} is no dtype") from error
    is_fit = not dtype.hasobject if is_argument else dtype.kind in _KINDS
    _wrong_unless(is_fit and dtype.itemsize > 0, f"arrays on devices are of numbers, not of {text[:40]!r}")
    return dtype


def value_bytes(value: ArgumentValue) -> int:
    """Return the bytes of a value, checked against the data that came with it.

    Raises
    ------
    PlanError
        If its dtype is none, or it has not the bytes of its shape.
    """
    size = dtype_of(value.dtype, is_argument=True).itemsize
    _wrong_unless(min(value.shape, default=0) >= 0 and value.offset >= 0, "a value has a shape or an offset below 0")
    nbytes = math.prod(value.shape) * size
    _wrong_unless(len(value.data) in (0, nbytes), f"a value of shape {value.shape[:8]} and {value.dtype[:40]} has "
                                                  f"{len(value.data)} bytes, not {nbytes}")
    return nbytes


def _wrong_unless(holds: bool, what: str) -> None:
    if not holds:
        raise PlanError(what)


# -- parts ------------------------------------------------------------------------------------------------------------

def _launches(plan: Plan) -> Iterator[Launch | StencilLaunch]:
    for variant in plan.variants:
        yield from variant.launches
    yield from plan.stencils


def _slots(arguments: Iterable[Argument]) -> list[int]:
    return [argument.slot for argument in arguments if isinstance(argument, Value | ArrayArgument)]


def _phases(plan: Plan) -> Iterator[Phase]:
    for step in plan.steps:
        if isinstance(step, IterateStep):
            yield from (*step.phases, *step.together)


def _halos(plan: Plan) -> Iterator[Halo]:
    for step in plan.steps:
        if isinstance(step, ExchangeStep):
            yield from step.halos
    for phase in _phases(plan):
        yield from phase.halos


# -- steps ------------------------------------------------------------------------------------------------------------

def _verify_step(plan: Plan, step: Step) -> None:
    match step:
        case KeepStep(place=place):
            _wrong_unless(place in ("host", "device"), f"a value is kept on host or device, not {place[:40]!r}")
        case FetchStep(limit=limit, over=over):
            _wrong_unless(over in _OVER or limit < 0, f"what is fetched is rows or blocks, not {over[:40]!r}")
        case FoldStep(fields, over) | FoldInsideStep(_, fields, over):
            _wrong_unless(over in _OVER, f"what is folded is rows or blocks, not {over[:40]!r}")
            _verify_folds(fields)
        case FoldByKeyStep(_, groups, fields):
            _verify_folds(fields)
            _wrong_unless(1 <= groups <= _MOST_KEYS, f"keys are folded below 1 to {_MOST_KEYS:,}, not {groups:,}")
        case MapFoldStep(_, fields, how, _, groups):
            _verify_folds(fields)
            _wrong_unless(how in ("inside", "all", "key"), f"a kernel folds inside, all or by key, not {how[:40]!r}")
            _wrong_unless(how != "key" or 1 <= groups <= _MOST_KEYS,
                          f"keys are folded below 1 to {_MOST_KEYS:,}, not {groups:,}")
        case ExchangeStep() | StencilStep() | IterateStep() | WindowStep():
            name = type(step).__name__.removesuffix("Step")
            _wrong_unless(plan.grid is not None, f"{name} is of a grid, and the plan has none")
            _verify_grid_step(plan, plan.grid, step)


def _verify_folds(fields: Sequence[FieldFold]) -> None:
    for each in fields:
        _wrong_unless(each.guard in ("", "overflow", "nan"), f"no fold is guarded for {each.guard[:40]!r}")
        if each.result:
            dtype_of(each.result)


def _verify_grid_step(plan: Plan, grid: GridShape, step: ExchangeStep | StencilStep | IterateStep | WindowStep) -> None:
    match step:
        case ExchangeStep():
            _verify_halos(grid, step.halos)
        case StencilStep():
            _verify_stencil_number(plan, step.launch)
        case WindowStep():
            axes = len(grid.shape)
            _wrong_unless(len(step.starts) == len(step.stops) == len(step.steps) == axes,
                          f"a window has starts, stops and steps for {axes} axes")
            _wrong_unless(all(each >= 1 for each in step.steps), "a window's steps are 1 or more")
            _wrong_unless(all(0 <= start <= stop <= extent for start, stop, extent in
                              zip(step.starts, step.stops, grid.shape, strict=True)), "a window lies in its grid")
        case IterateStep():
            _wrong_unless(bool(step.phases), "a loop has a phase or more")
            _wrong_unless(min(step.steps, step.done, step.check, step.every - 1, step.stride - 1) >= 0,
                          "a loop's steps, and how often it looks, are no numbers below 0")
            _wrong_unless(not math.isnan(step.until), "a loop goes on until a change that is a number")
            _wrong_unless(step.stride == 1 or bool(step.together), "a loop of several steps at once says how")
            for phase in (*step.phases, *step.together):
                _verify_stencil_number(plan, phase.launch)
                _verify_halos(grid, phase.halos)


def _verify_stencil_number(plan: Plan, number: int) -> None:
    _wrong_unless(0 <= number < len(plan.stencils),
                  f"a step launches stencil {number}, and the plan has {len(plan.stencils)}")


def _verify_halos(grid: GridShape, halos: Sequence[Halo]) -> None:
    axes, ghosts = len(grid.shape), grid.ghosts or grid.halo
    for halo in halos:
        _wrong_unless(len(halo.below) == len(halo.above) == axes and len(halo.sides) == 2 * axes,
                      f"a halo has widths for {axes} axes and {2 * axes} sides")
        _wrong_unless(all(0 <= each <= most for widths in (halo.below, halo.above)
                          for each, most in zip(widths, ghosts, strict=True)),
                      f"a halo is as wide as the grid's ghost cells, {ghosts}, at most")
        for place, side in enumerate(halo.sides):
            _wrong_unless(side.rule in _RULES, f"a side is {', '.join(_RULES)}, not {side.rule[:40]!r}")
            other = halo.sides[place ^ 1]
            _wrong_unless((side.rule == "periodic") == (other.rule == "periodic"),
                          "an axis is periodic at both its sides, or at none")


def _verify_stencil(plan: Plan, grid: GridShape, launch: StencilLaunch) -> None:
    axes, ghosts = len(grid.shape), grid.ghosts or grid.halo
    _verify_module(plan, launch.module)
    _verify_arguments(launch.arguments)
    _wrong_unless(bool(launch.outputs), "a stencil writes a field or more")
    for described in launch.outputs:
        _wrong_unless(not described.shape, "what a stencil writes is of a cell's shape, which is ()")
        dtype_of(described.dtype)
    _wrong_unless(len(launch.below) == len(launch.above) == axes, f"a stencil says how far it reads along {axes} axes")
    _wrong_unless(all(0 <= each <= most for widths in (launch.below, launch.above)
                      for each, most in zip(widths, ghosts, strict=True)),
                  f"a stencil reads ghost cells, of which there are {ghosts}")
    _wrong_unless(len(launch.block) == len(launch.tile) == 3 and min(*launch.block, *launch.tile) >= 1,
                  "a stencil's block and tile are three numbers from 1 on")
    _wrong_unless(-1 <= launch.dealt < 3 and launch.shared >= 0, "a stencil's dealt axis is -1, 0, 1 or 2")


# -- variants and launches --------------------------------------------------------------------------------------------

def _verify_variant(plan: Plan, variant: Variant) -> None:
    keeps = sum(isinstance(step, KeepStep) for step in plan.steps)
    _wrong_unless(min(len(variant.layouts), len(variant.counts)) >= keeps,
                  f"a variant has {len(variant.layouts)} layouts and {len(variant.counts)} counts for {keeps} values "
                  "to keep")
    _wrong_unless(min(variant.counts, default=0) >= -1, "a variant's counts are numbers of records, or -1")
    for described in variant.signature.fields:
        _verify_field(described)
    steps = [step for step in plan.steps if isinstance(step, ExecStep | MapFoldStep)]
    _wrong_unless(len(variant.launches) == len(steps),
                  f"a variant has {len(variant.launches)} launches for {len(steps)} steps")
    for step, launch in zip(steps, variant.launches, strict=True):
        _verify_launch(plan, launch)
        if isinstance(step, MapFoldStep):
            _verify_partials(step, launch)


def _verify_field(described: Field) -> None:
    size = dtype_of(described.dtype).itemsize
    _wrong_unless(len(described.shape) <= _MOST_AXES and min(described.shape, default=0) >= 0,
                  f"an array has 0 to {_MOST_AXES} axes of 0 or more items, not {described.shape[:8]}")
    _wrong_unless(math.prod([max(extent, 1) for extent in described.shape]) * size <= _MOST_BYTES,
                  f"an array has at most {_MOST_BYTES:,} bytes, and its shape is {described.shape}")


def _verify_module(plan: Plan, number: int) -> None:
    _wrong_unless(0 <= number < len(plan.modules),
                  f"a launch is of module {number}, and the plan has {len(plan.modules)}")


def _verify_arguments(arguments: Sequence[Argument]) -> None:
    for argument in arguments:
        if isinstance(argument, ScalarArgument):
            size = dtype_of(argument.dtype, is_argument=True).itemsize
            _wrong_unless(len(argument.value) == size,
                          f"a scalar of {argument.dtype} has {len(argument.value)} bytes, not {size}")


def _verify_launch(plan: Plan, launch: Launch) -> None:
    _verify_module(plan, launch.module)
    _verify_arguments(launch.arguments)
    for described in launch.outputs:
        _verify_field(described)
    names = [described.name for described in launch.outputs]
    _wrong_unless(len(set(names)) == len(names), f"a launch writes fields of one name: {names[:8]}")
    written = [argument.field for argument in launch.arguments if isinstance(argument, Out)]
    _wrong_unless(set(written) <= set(names),
                  f"a kernel writes {sorted(set(written) - set(names))[:8]}, and the launch leaves {names[:8]}")
    _wrong_unless(launch.tile >= 0 and launch.cluster >= 1 and launch.shared >= 0 and 0 <= launch.waves < math.inf,
                  "a launch's tile, cluster, shared memory and waves are no numbers below 0")
    for number in launch.initial:
        _wrong_unless(len(number) in (0, 1, 2, 4, 8, 16), f"a number that fills an array has {len(number)} bytes")
    if launch.preparation is not None:
        _wrong_unless(0 <= launch.preparation.nbytes <= _MOST_BYTES, "what a preparation makes has no bytes below 0")
    for partial in launch.partials:
        _wrong_unless(1 <= partial.width <= _MOST_BYTES, f"a partial has {partial.width} accumulators")


def _verify_partials(step: MapFoldStep, launch: Launch) -> None:
    """Verify that the partials of a fold's kernel match the fold's fields and keys."""
    there = {(partial.field, partial.guard): partial for partial in launch.partials}
    wanted = [(described.name, "") for described in launch.outputs]
    wanted += [(step.key, guard) for guard in ("", "least", "greatest")] if step.how == "key" else []
    for field, guard in wanted:
        _wrong_unless((field, guard) in there, f"a kernel that folds leaves no partials for {field!r} {guard}".rstrip())
    sizes = {described.name: math.prod(described.shape) for described in launch.outputs}
    for partial in launch.partials:
        _verify_partial(partial, sizes, step)


def _verify_partial(partial: Accumulators, sizes: dict[str, int], step: MapFoldStep) -> None:
    own = partial.field in sizes or (step.how == "key" and partial.field == step.key)
    _wrong_unless(own, f"a kernel leaves partials of {partial.field!r}, which is no field of its result")
    if partial.field in sizes and not partial.guard:
        parts = max(sizes[partial.field], 1)
        _wrong_unless(partial.width in (parts, 2 * parts),
                      f"the partials of {partial.field!r} are {partial.width} and its elements {parts}")


# -- partitions -------------------------------------------------------------------------------------------------------

def _verify_inputs(plan: Plan) -> None:
    variants, blocks = len(plan.variants), 0
    if plan.grid is not None:
        blocks = math.prod(plan.grid.splits)
    for part in plan.inputs:
        _verify_input(part, variants, blocks)
    # What is made of them is told apart by their numbers.
    _wrong_unless(len({part.partition for part in plan.inputs}) == len(plan.inputs), "a plan has a partition twice")
    places = [place for part in plan.inputs for place in part.positions]
    _wrong_unless(not blocks or len(set(places)) == len(places), "a plan has a block of the grid twice")


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


