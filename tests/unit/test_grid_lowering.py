"""Grids on their way to the workers: which exchanges, stencils and loops a chain becomes, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpu_worker.protocol.grids import ExchangeStep, Iterated, IterateStep, StencilStep, WindowStep
from gpu_worker.protocol.messages import ExecStep, FetchStep, KeepStep, LoadStep, ToDeviceStep, ValuesStep
from vispark import IN, OUT, Grid, Kernels, PlanError, TranslationError, stencil
from vispark.data.records import pack
from vispark.data.records.partition_schema import PartitionSchema
from vispark.plan import ops
from vispark.plan.exec_call import record_exec
from vispark.plan.loop_call import record_loop
from vispark.plan.lower.grid import GridLowering, lowering
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import FETCH, KEEP
from vispark.plan.map_call import record_map
from vispark.plan.ops import DatasetId, PlanNode
from vispark.plan.slots import ArgumentRef
from vispark.runtime.driver.loop_pacing import ChunkController, EndedLoop, run_parts
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT

START, END = DatasetId(1, "start"), DatasetId(2, "end")
APPEND = ops.HaloAppend()


@stencil
def smooth(u, k):
    return u[0, 0] + k * (u[-1, 0] + u[0, 2])


@stencil
def drift(u, v):
    return {"u": u[0, 1] - v[0, 0]}


@stencil
def push(u, v):
    return {"v": v[1, 0] + u[0, -1]}


ONE = np.float32(1)


def content(grid: Grid, value=ONE, positions=None) -> PartitionSchema:
    keys = [key for key in grid.blocks() if positions is None or key.number in positions]
    fields = dict(grid.fields)
    packed = pack([(key, {name: np.zeros(key.shape, dtype) for name, dtype in fields.items()} if fields
                    else np.full(key.shape, value)) for key in keys], seal=bytes)
    return PartitionSchema(packed.count, len(packed.keys), packed.layout, tuple(packed.signatures), packed.positions)


def lowered(grid: Grid, *operations: ops.RecordedOperation, requested=KEEP, shared_limit: int = SHARED_LIMIT,
            **cells) -> GridLowering:
    chain = (PlanNode(ops.Send()), PlanNode(ops.ToDevice(), START), *map(PlanNode, operations[:-1]),
             PlanNode(operations[-1], END))
    first = content(grid, **cells)
    work = lowering(chain, START, requested, [first], shared_limit)
    assert isinstance(work, GridLowering)
    work.add(0, first)
    assert work.finish() == ""
    work.prepare()
    return work


def vmap(function, *arguments) -> ops.Map:
    return ops.Map(record_map(function, arguments))


GRID = Grid((10, 12), (3, 2), 2, ("periodic", (7.0, "mirrored")))
FIELDS = Grid((10, 12), (3, 2), 1, {"u": "mirrored"}, {"u": "f8", "v": "f8"})

#: Where a function says what is outside, each stencil is a pass.
VARIED = Grid((10, 12), (3, 2), 1, {"u": lambda y, x: x}, {"u": "f8", "v": "f8"})


def test_a_stencil_is_an_exchange_as_wide_as_it_reads_and_a_launch():
    work = lowered(GRID, APPEND, vmap(smooth, 0.5))
    load, device, exchange, step, keep = work.steps
    assert (type(load), type(device), type(step), type(keep)) == (LoadStep, ToDeviceStep, StencilStep, KeepStep)
    halo, = exchange.halos
    assert (halo.field, halo.below, halo.above) == ("", (1, 0), (0, 2))
    assert [side.rule for side in halo.sides] == ["periodic", "periodic", "given", "mirrored"]
    launch = work.stencils[step.launch]
    assert (launch.below, launch.above, launch.inputs, launch.merge) == ((1, 0), (0, 2), ("",), False)
    assert [each.dtype for each in launch.outputs] == ["<f4"]
    plan = work._plan([0], ())
    assert plan.grid == GRID.description.grid_shape and plan.stencils == (launch,)
    assert plan.inputs[0].positions == tuple(range(6))


def test_a_function_that_reads_neighbours_without_being_a_stencil_is_told_what_it_gets():
    with pytest.raises(TranslationError, match=r"(?s)float32 has no items.*a grid's blocks.*@stencil"):
        lowered(GRID, vmap(lambda u: u[0, 1]))


def test_of_fields_what_is_read_by_offsets_is_exchanged_and_nothing_twice():
    work = lowered(FIELDS, APPEND, vmap(drift), APPEND, vmap(push), vmap(lambda v: {"v": v + 1}))
    exchanges = [[(halo.field, halo.below, halo.above) for halo in step.halos] for step in work.steps
                 if isinstance(step, ExchangeStep)]
    assert exchanges == [[("u", (0, 0), (0, 1))], [("u", (0, 1), (0, 0)), ("v", (0, 0), (1, 0))]]
    assert [launch.inputs for launch in work.stencils] == [("u", "v"), ("u", "v"), ("v",)]
    assert [step.label for step in work.steps if isinstance(step, StencilStep)] == ["vmap drift", "vmap push",
                                                                               "vmap lambda"]
    twice = lowered(FIELDS, APPEND, vmap(lambda v: {"v": v + 1}), APPEND, vmap(drift), APPEND, vmap(push))
    assert sum(isinstance(step, ExchangeStep) for step in twice.steps) == 2


def test_what_went_through_host_memory_is_exchanged_again():
    @stencil
    def left(u):
        return {"v": u[0, -1]}

    def exchanges(*between: ops.RecordedOperation) -> int:
        steps = lowered(FIELDS, APPEND, vmap(left), *between, APPEND, vmap(left)).steps
        return sum(isinstance(step, ExchangeStep) for step in steps)

    assert exchanges() == exchanges(ops.ToDevice()) == 1        # u is as it was
    assert exchanges(ops.ToHost()) == exchanges(ops.ToHost(), ops.ToDevice()) == 2


def test_what_lies_outside_has_the_fields_dtype():
    grid = Grid((10, 12), (3, 2), 2, {"u": ("periodic", (lambda y, x: y, 7)), "v": ((2.5, "mirrored"), 0.0)},
                {"u": "i4", "v": "f8"})

    @stencil
    def both(u, v):
        return {"u": u[0, -2] + u[0, 1], "v": v[-1, 0]}

    u, v = lowered(grid, APPEND, vmap(both)).steps[2].halos
    assert [side.rule for side in u.sides] == ["periodic", "periodic", "given", "given"]
    assert np.frombuffer(u.sides[3].value, "i4") == [7]
    assert np.frombuffer(v.sides[0].value, "f8") == [2.5]
    work = lowered(grid, APPEND, vmap(both))
    values = work.slots.origins()[u.sides[2].values]
    array = np.frombuffer(values.data, values.dtype).reshape(values.shape)
    assert array.shape == (14, 2) and array.dtype == np.int32
    np.testing.assert_array_equal(array[:, 0], [8, 9, *range(10), 0, 1])


def test_a_loop_is_one_step_whose_phases_exchange_what_they_read():
    spec = record_loop([(drift, ()), (push, ()), smooth_v], (), 40, 1e-3, 5, True)
    work = lowered(VARIED, ops.Iterate(spec.part(30, 10)))
    step, = [step for step in work.steps if isinstance(step, IterateStep)]
    assert (step.steps, step.done, step.until, step.every, step.check) == (30, 10, 1e-3, 5, 100)
    assert [[halo.field for halo in phase.halos] for phase in step.phases] == [["u"], ["u", "v"], []]
    assert [phase.launch for phase in step.phases] == [0, 1, 2]
    assert step.label == "iterate drift, push, smooth_v"


def test_stencils_of_a_step_are_one_pass_that_reads_as_far_as_all_of_them():
    spec = record_loop([(drift, ()), (push, ()), smooth_v, push], (), 40, 1e-3, 1, True)
    step, = [step for step in lowered(FIELDS, ops.Iterate(spec)).steps if isinstance(step, IterateStep)]
    phase, = step.phases
    assert (phase.label, step.together, step.stride) == ("vmap drift, push, smooth_v, push", (), 1)
    assert [(halo.field, halo.below, halo.above) for halo in phase.halos] == [
        ("u", (0, 1), (1, 1)), ("v", (0, 1), (2, 0))]


@pytest.mark.parametrize(("halo", "boundary", "checks", "stride"), [
    (3, 0.0, {}, 3), (1, "periodic", {}, 3), (5, ("periodic", 0.0, 1.0), {}, 3),
    (2, lambda z, y, x: z, {}, 2), (3, "mirrored", {}, 3), (3, 0.0, {"until": 1e-3}, 1),
    (3, 0.0, {"until": 1e-3, "every": 3}, 2), (3, 0.0, {"until": 1e-3, "every": 4}, 3), (3, 0.0, {"check": 10}, 3)])
def test_steps_are_joined_where_nothing_is_asked_between(halo, boundary, checks, stride):
    @stencil
    def heat(u, k):
        around = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
        return {"u": u[0, 0, 0] + k * around}

    spec = record_loop(heat, (0.1,), 10, checks.get("until"), checks.get("every", 1), checks.get("check", 0))
    work = lowered(Grid((30, 30, 30), (1, 1, 2), halo, boundary, {"u": "f4"}), ops.Iterate(spec))
    step, = [step for step in work.steps if isinstance(step, IterateStep)]
    assert step.stride == stride and len(step.phases) == 1 and len(step.together) == (stride > 1)
    if stride > 1:
        together, = step.together
        assert together.halos[0].below == together.halos[0].above == (stride,) * 3
        assert work.stencils[together.launch].arguments == work.stencils[step.phases[0].launch].arguments


@pytest.mark.parametrize(("steps", "check", "left"), [
    (9, 0, ""), (10, 0, ", the last of 10 in 1 pass over memory"),
    (11, 0, ", the last 2 of 11 a step in 1 pass over memory"),
    (9, 5, ", where fewer are left before something is asked for, or at the end, a step in 1 pass over memory")])
def test_it_is_said_how_the_steps_are_done_that_are_left_over(steps, check, left):
    spec = record_loop(fill_u, (), steps, None, 1, check)
    line, = lowered(Grid((30, 30, 30), (1, 1, 2), 3, 0.0, {"u": "f4"}), ops.Iterate(spec)).passes
    assert line.partition(";")[0] == f"iterate fill_u: 3 steps in 1 pass over memory{left}"


@stencil
def fill_u(u):
    return {"u": u[0, 0, 0] + 0.5 * (u[-1, 0, 0] - u[0, 1, 0])}


def test_so_many_steps_are_joined_as_shared_memory_holds():
    spec = record_loop([(slope, ()), (fill, (0.1,))], (), 9, None, 1, 0)
    grid = Grid((9, 9, 20), (1, 1, 2), 1, "mirrored", {"u": "f8", "v": "f8"})
    work = lowered(grid, ops.Iterate(spec), shared_limit=48 << 10)
    assert all(launch.shared <= 48 << 10 for launch in work.stencils)
    line, = work.passes
    assert "in 2 passes" in line and "more than the 49,152 bytes of shared memory" in line


def smooth_v(v):
    return {"v": v * 0.5}


@stencil
def slope(u):
    return {"v": u[1, 0, 0] - u[0, -1, 0]}


@stencil
def fill(u, v, k):
    return {"u": u[0, 0, 0] + k * (v[-1, 0, 0] - v[0, 1, 0])}


@pytest.mark.parametrize(("phases", "fields", "passes", "together", "reason"), [
    ([(slope, ()), (fill, (0.1,))], {"u": "f8", "v": "f8"}, 1, 0, ""),
    ([(slope, ()), (fill, (0.1,))] * 2, {"u": "f8", "v": "f8"}, 2, 0, ""),
    ([(fill, (0.1,))], {"u": "f8", "v": "f4"}, 1, 0, "not of one type of 4 or 8 bytes")])
def test_stencils_of_three_axes_are_joined_two_fields_at_a_time(phases, fields, passes, together, reason):
    spec = record_loop(phases, (), 9, None, 1, 0)
    work = lowered(Grid((9, 9, 20), (1, 1, 2), 1, "mirrored", fields), ops.Iterate(spec))
    step, = [step for step in work.steps if isinstance(step, IterateStep)]
    assert (len(step.phases), len(step.together)) == (passes, together)
    values = [np.frombuffer(spec.value(work.slots.origins()[argument.slot]).data, "f8")[0] for phase in step.phases
              for argument in work.stencils[phase.launch].arguments]
    assert values == [0.1] * sum(function is fill for function, _ in phases)
    line, = work.passes
    assert f"in {passes} pass" in line and reason in line


def test_arguments_of_phases_are_told_apart():
    @stencil
    def scaled(u, k):
        return {"u": u[0, 1] * k}

    spec = record_loop([(scaled, (2.0,)), (scaled, (3.0,)), (scaled, (2.0,))], (), 4, None, 1, 0)
    work = lowered(FIELDS, ops.Iterate(spec))
    launch, = {work.stencils[phase.launch] for step in work.steps if isinstance(step, IterateStep)
               for phase in step.phases}
    origins = [work.slots.origins()[argument.slot] for argument in launch.arguments]
    assert [np.frombuffer(spec.value(each).data, "f8")[0] for each in origins] == [2.0, 3.0, 2.0]


def test_a_step_that_changes_the_fields_is_refused():
    for function, message in [(lambda v: {"v": v * 0.5, "w": v}, "makes float64 of nothing in field 'w'; .* scatter"),
                              (lambda u: {"u": u > 1}, "makes bool of float64 in field 'u'"),
                              (lambda v: {"v": v * 1j}, "makes complex128 of float64 in field 'v'"),
                              (lambda u: u, "gives one value, .* the fields 'u', 'v': return a dict .*'u': ")]:
        with pytest.raises(PlanError, match=message):
            lowered(FIELDS, ops.Iterate(record_loop(function, (), 4, None, 1, 0)))
    with pytest.raises(PlanError, match="gives a dict with 'u', and the grid has no named fields: return the cell's"):
        lowered(Grid((10, 12), (3, 2), 1), ops.Iterate(record_loop(lambda u: {"u": u * 0.5}, (), 4, None, 1, 0)))


@pytest.mark.parametrize(("arguments", "message"), [
    ((smooth, (1.0,), -1, None, 1, 0), "steps=-1"), ((smooth, (1.0,), 2.0, None, 1, 0), "steps=2.0"),
    ((smooth, (1.0,), 2, -1.0, 1, 0), "until=-1.0"), ((smooth, (1.0,), 2, True, 1, 0), "until=True"),
    ((smooth, (1.0,), 2, None, 0, 0), "every=0"),
    ((smooth, (1.0,), 2, None, 1, -3), "check=-3"), (([], (), 2, None, 1, 0), "a list of"),
    (([(smooth, (1.0,))], (2.0,), 2, None, 1, 0), "beside them"), (([(smooth, 1.0)], (), 2, None, 1, 0), "a phase of"),
    (([3], (), 2, None, 1, 0), "a phase of"), ((3, (), 2, None, 1, 0), "a list of"),
])
def test_what_no_loop_can_be_is_said(arguments, message):
    with pytest.raises(PlanError, match=message):
        record_loop(*arguments)


def test_what_ends_a_loop_may_be_any_real_number():
    assert record_loop(smooth, (1.0,), 2, np.float32(0.25), 1, 0).until == 0.25


COPY = Kernels("extern \"C\" __global__ void copy(const float* in, float* out, int n) {}")


def copying(**named) -> ops.Exec:
    return ops.Exec(record_exec(COPY.copy, (IN, OUT, IN.size), grid=1, block=32, **named))


def test_a_kernel_gets_blocks_with_their_halos_and_everything_is_exchanged():
    work = lowered(GRID, APPEND, copying(), requested=FETCH)
    exchange = next(step for step in work.steps if isinstance(step, ExchangeStep))
    assert [(halo.below, halo.above) for halo in exchange.halos] == [((2, 2), (2, 2))]
    assert [type(step) for step in work.steps] == [LoadStep, ToDeviceStep, ExchangeStep, ExecStep, KeepStep, FetchStep]
    shapes = {launches[0].outputs[0].shape for launches in work.launches}
    assert shapes == {(8, 10), (7, 10)}
    result = work.results()[0]
    assert result.layout.kind == "grid" and {each.fields[0].shape for each in result.signatures} == {(4, 6), (3, 6)}
    inner = lowered(GRID, APPEND, copying(out=lambda b: ((b.shape[0] - 4, b.shape[1] - 4), "f4")))
    assert {launches[0].outputs[0].shape for launches in inner.launches} == {(4, 6), (3, 6)}
    with pytest.raises(PlanError, match="of a grid's block it is"):
        lowered(GRID, APPEND, copying(out=lambda b: (b.shape[0], "f4")))
    with pytest.raises(PlanError, match="these are stale"):
        lowered(GRID, copying())
    assert lowered(Grid((10, 12), (3, 2), 0), copying()).steps


def test_what_a_stencil_cannot_be_on_this_grid_is_said():
    @stencil
    def wide(u):
        return u[0, 3]

    @stencil
    def flat(u):
        return u[1]

    with pytest.raises(TranslationError, match="halo=3"):
        lowered(GRID, APPEND, vmap(wide))
    with pytest.raises(TranslationError, match="2 axes"):
        lowered(GRID, APPEND, vmap(flat))
    with pytest.raises(PlanError, match="name the fields"):
        lowered(GRID, vmap(lambda u: (u, 2 * u)))
    with pytest.raises(PlanError, match=r"block \(0, 1\) of the grid is missing"):
        lowered(GRID, APPEND, vmap(smooth, 0.5), positions=(0, 2, 3, 4, 5))
    with pytest.raises(PlanError, match=r"0\.5, which its int32 cannot hold"):
        lowered(Grid((10, 12), (3, 2), 2, 0.5), APPEND, vmap(smooth, 2), value=np.int32(1))


def test_a_window_has_the_cells_that_numpy_gives():
    whole = np.arange(120).reshape(10, 12)
    work = lowered(GRID, ops.Window((1, 3), (9, 12), (2, 4)), requested=FETCH)
    assert isinstance(work.steps[1], WindowStep)
    result = work.results()[0]
    shapes = [each.fields[0].shape for each in result.signatures]
    cells = set(whole[1:9:2, 3:12:4].ravel())
    assert shapes == [(sum(bool(cells & set(row)) for row in whole[key.slices]),
                       sum(bool(cells & set(column)) for column in whole[key.slices].T)) for key in GRID.blocks()]
    assert sum(np.prod(shape) for shape in shapes) == len(cells)
    assert result.layout.kind == "blocks" and result.layout.keyed and result.positions == ()
    values = lowered(GRID, ops.Window((1, 3), (9, 12), (2, 4)), ops.Values(), requested=FETCH).results()[0]
    assert values.signatures == result.signatures and not values.layout.keyed


def test_without_their_keys_blocks_are_plain_ones():
    work = lowered(GRID, vmap(lambda u: u + 1), ops.Values(), vmap(lambda row: row * 2), requested=FETCH)
    assert [type(step) for step in work.steps] == [LoadStep, ToDeviceStep, StencilStep, ValuesStep, ToDeviceStep,
                                                   ExecStep, KeepStep, FetchStep]
    assert work.results()[0].layout.kind == "blocks"
    plain = Lowering((PlanNode(ops.Send()), PlanNode(ops.ToDevice(), START), PlanNode(APPEND)), START, KEEP)
    packed = pack([np.zeros((3, 3))], seal=bytes)
    with pytest.raises(PlanError, match="needs the blocks of a Grid"):
        plain.add(0, PartitionSchema(1, 0, packed.layout, tuple(packed.signatures)))


def test_what_needs_neighbours_is_known():
    def chain(*operations):
        return (PlanNode(ops.Send()), PlanNode(ops.ToDevice(), START), *map(PlanNode, operations))

    loop = ops.Iterate(record_loop(smooth, (1.0,), 4, None, 1, 0))
    for operations, needed in [((APPEND, vmap(smooth, 1.0)), True), ((vmap(lambda u: u),), False), ((loop,), True),
                               ((APPEND, copying()), True), ((copying(),), False), ((APPEND,), False)]:
        assert ops.runs_together(chain(*operations), START) == needed
        assert ops.runs_together(chain(*operations), None) == needed
    done = (*chain(APPEND), PlanNode(vmap(smooth, 1.0), END), PlanNode(vmap(lambda u: u)))
    assert ops.runs_together(done, START) and not ops.runs_together(done, END)
    assert ops.loops((*chain(loop), PlanNode(vmap(lambda u: u)))) and not ops.loops(done)


def test_a_long_loop_is_run_in_parts_of_half_a_second():
    parts = []

    def run(count, done):
        parts.append((count, done))
        pace.learn(count, count * 1e-3)
        return Iterated(count, -1.0)

    shown, pace = [], ChunkController()
    assert run_parts(2500, -1.0, run, lambda done, change: shown.append(done), pace) == EndedLoop(2500, None)
    assert [count for count, _ in parts] == [12, 96, 492, 492, 492, 492, 424]
    assert shown == [sum(count for count, _ in parts[:number + 1]) for number in range(len(parts))]
    assert [done for _, done in parts] == [0, *shown[:-1]]


def test_a_loop_ends_where_its_change_is_small_enough():
    ends, pace = iter([Iterated(12, -1.0), Iterated(96, 0.5), Iterated(20, 0.01)]), ChunkController()

    def run(count, done):
        pace.learn(count, 1e-3)
        return next(ends)

    assert run_parts(5000, 0.1, run, lambda done, change: None, pace) == EndedLoop(128, 0.01)


def test_parts_of_a_loop_that_asks_its_cells_are_one_plan():
    parts, pace = [], ChunkController()

    def run(count, done):
        parts.append((count, done))
        pace.learn(count, count * 1e-3)
        return Iterated(count, 1.0)

    loop = record_loop(smooth, (1.0,), 2500, 0.1, 10, 15)
    run_parts(2500, 0.1, run, lambda done, change: None, pace, period=loop.period)
    assert parts == [(12, 0), (78, 12), (480, 90), (480, 570), (480, 1050), (480, 1530), (490, 2010)]
    keys = {loop.part(*part).shape_key() for part in parts[2:-1]}
    assert len(keys) == 1 and loop.part(480, 100).shape_key() not in keys
    assert loop.part(480, 570).value(ArgumentRef(0, "done", 0)).data == np.int64(570).tobytes()


def test_a_change_that_is_nan_ends_no_loop_and_is_told(caplog):
    result = run_parts(20, 0.1, lambda count, done: Iterated(count, math.nan), lambda done, change: None,
                       ChunkController(), "this")
    assert result.steps == 20 and math.isnan(result.change)
    assert "this: by step 12 the change of a cell is NaN" in caplog.messages[0] and len(caplog.messages) == 1


def test_parts_of_loops_that_come_again_are_alike():
    parts, pace = [], ChunkController()

    def run(count, done):
        parts.append(count)
        pace.learn(count, count * 2e-3 * (1 + len(parts) % 3 / 10))
        return Iterated(count, -1.0)

    for _ in range(3):
        run_parts(100, -1.0, run, lambda done, change: None, pace)
    assert parts == [12, 88, 100, 100]
    run_parts(2000, -1.0, run, lambda done, change: None, pace)
    assert len(set(parts[4:-1])) == 1 and sum(parts[4:]) == 2000
