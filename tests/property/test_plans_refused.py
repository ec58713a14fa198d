"""Whatever is changed in a plan, it runs or is refused with a typed error, and what was held is still held."""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_worker.protocol.errors import PlanError, VisparkError
from gpu_worker.protocol.grids import ExchangeStep, GridShape, Halo, IterateStep, Phase, Side, StencilStep, WindowStep
from gpu_worker.protocol.messages import (
    Accumulators,
    ArgumentValue,
    ArrayArgument,
    ExecStep,
    FetchStep,
    Field,
    FieldFold,
    FoldByKeyStep,
    FoldInsideStep,
    FoldStep,
    In,
    Input,
    KeepStep,
    KeysStep,
    Launch,
    LoadStep,
    MapFoldStep,
    Module,
    Out,
    Plan,
    Preparation,
    PutStep,
    Run,
    ScalarArgument,
    Signature,
    StencilLaunch,
    Step,
    ToDeviceStep,
    ToHostStep,
    ValueArgument,
    ValuesStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload
from gpu_worker.protocol.plans import sealed
from gpu_worker.protocol.wire import close_all
from tests.unit.plans import Bench, bench

SOURCE = Module('extern "C" __global__ void k(float* a) {}', "k.cu", ("-DN=1",), (0,), ("c",))
ROWS = Signature((Field("u", "<f4", (6, 4)), Field("k", "<i8", (6,))))
ONE = Signature((Field("", "<f8", (6,)),))
CELLS = Signature((Field("p", "<f4", (4, 6)),))
GRID = GridShape((8, 6), (2, 1), (1, 1))
EDGE = Side("given", np.float32(0).tobytes(), -1)
HALOS = (Halo("p", (1, 1), (1, 1), (EDGE, EDGE, Side("periodic", b"", -1), Side("periodic", b"", -1))),)
STENCIL = StencilLaunch(0, "k", ("p",), (Field("p", "<f4", ()),), (ValueArgument(0),), (1, 1), (1, 1), (32, 1, 1),
                        (32, 8, 1), 0, False)


@dataclass(frozen=True)
class PlanCase:
    """A plan, and what its request brings."""

    plan: Plan
    vrdds: tuple[int, ...]
    values: tuple[ArgumentValue, ...]
    results: int = -1
    profile: bool = False
    payload: int = 0


def launch(*arguments, **changes) -> Launch:
    default = Launch((2,), (64,), 0, arguments
                     or (In("u"), Out("v"), ValueArgument(0), ArrayArgument(1), ScalarArgument("<i4", b"\1\0\0\0")),
                     (Field("v", "<f4", (6, 4)),), kernel="k")
    return replace(default, **changes)


def plan(steps: typing.Sequence[Step], signature: Signature = ROWS, launches=(), *, keeps: int = 1, grid=None,
         stencils=(), count: int = 6) -> Plan:
    variant = Variant(signature, tuple(launches), (b"layout",) * keeps, (-1,) * keeps)
    inputs = tuple(Input(index, count, 0, 0 if grid else 256 * 3 * index, b"", (0,), (index,) if grid else ())
                   for index in range(2))
    return Plan(tuple(steps), (SOURCE,), (variant,), inputs, (), grid, stencils)


VALUES = (ArgumentValue("<f4", (), np.float32(2).tobytes(), 0), ArgumentValue("<f8", (3,), np.arange(3.0).tobytes(), 0))
SUM = (FieldFold("u", "add"),)
TABLE = launch(In("u"), Out("v"), ValueArgument(0), tile=2, waves=1.5, grid=())
PARTIALS = (Accumulators("u", "add", "double", 4), Accumulators("u", "add", "double", 4, "nan"))
FOLDED = launch(In("u"), tile=2, grid=(), partials=PARTIALS, outputs=(Field("u", "<f4", (4,)),),
                preparation=Preparation("k", 64, (1,), (32,)))
KEYED = launch(In("u"), tile=2, grid=(), outputs=(Field("u", "<f4", (3, 4)),),
               partials=(Accumulators("u", "add", "double", 12), Accumulators("k", "add", "long long", 3),
                         Accumulators("k", "minimum", "long long", 1, "least"),
                         Accumulators("k", "maximum", "long long", 1, "greatest")))
LOOP = IterateStep("loop", (Phase("s", HALOS, 0),), 3, 0, -1.0, 1, 0)

#: Plans that a worker runs; 1 has rows, 2 arrays without names, 3 is a grid.
ASKED = {
    "put": PlanCase(plan((PutStep(), ToDeviceStep(), KeepStep(0, "x", "device"))), (9,), (), payload=2 * 768),
    "put on the host": PlanCase(plan((PutStep(), KeepStep(0, "x", "host"))), (9,), (), payload=2 * 768),
    "fetch": PlanCase(plan((LoadStep(0), ToHostStep(), FetchStep(2, "rows"))), (1,), ()),
    "fetch blocks": PlanCase(plan((LoadStep(0), KeysStep(), FetchStep(-1, "blocks")), count=1), (1,), (), profile=True),
    "exec": PlanCase(plan((LoadStep(0), ExecStep("e"), KeepStep(1, "y", "device")), launches=[launch()]), (1, 9),
                     VALUES),
    "table": PlanCase(plan((LoadStep(0), ExecStep("e"), ValuesStep(), KeepStep(1, "y", "device")), launches=[TABLE]),
                      (1, 9), VALUES),
    "fold": PlanCase(plan((LoadStep(0), FoldStep((FieldFold("", "add", "overflow"),), "rows")), ONE), (2,), (),
                     results=0),
    "fold blocks": PlanCase(plan((LoadStep(0), ValuesStep(), FoldStep((FieldFold("", "maximum", "nan"),), "blocks"))),
                            (1,), ()),
    "by key": PlanCase(plan((LoadStep(0), FoldByKeyStep("k", 3, SUM))), (1,), ()),
    "inside": PlanCase(plan((LoadStep(0), FoldInsideStep("i", (FieldFold("", "minimum"),), "blocks"),
                             FetchStep(-1, "rows"))), (1,),
                       ()),
    "map, fold": PlanCase(plan((LoadStep(0), MapFoldStep("m", SUM, "all")), launches=[FOLDED]), (1,), VALUES),
    "map, fold by key": PlanCase(plan((LoadStep(0), MapFoldStep("m", SUM, "key", "k", 3)), launches=[KEYED]), (1,),
                                 VALUES),
    "map, fold inside": PlanCase(plan((LoadStep(0), MapFoldStep("m", SUM, "inside"), FetchStep(-1, "rows")),
                                      launches=[FOLDED]), (1,),
                                 VALUES),
    "exchange": PlanCase(plan((LoadStep(0), ExchangeStep("x", HALOS), StencilStep("s", 0), KeepStep(1, "y", "device")),
                              CELLS, grid=GRID,
                              stencils=(STENCIL,), count=1), (3, 9), VALUES),
    "loop": PlanCase(plan((LoadStep(0), ToDeviceStep(), LOOP, KeepStep(1, "y", "device")), CELLS, grid=GRID,
                          stencils=(STENCIL,),
                          count=1), (3, 9), VALUES),
    "loop until": PlanCase(plan((LoadStep(0), replace(LOOP, until=0.5, every=2), KeepStep(1, "y", "device")), CELLS,
                                grid=GRID, stencils=(STENCIL,), count=1), (3, 9), VALUES),
    "window": PlanCase(plan((LoadStep(0), WindowStep((0, 1), (8, 5), (2, 1)), FetchStep(-1, "blocks")), CELLS,
                            grid=GRID, count=1),
                       (3,), ()),
    "grid exec": PlanCase(plan((LoadStep(0), ExecStep("e"), KeepStep(1, "y", "device")), CELLS, grid=GRID, count=1,
                               launches=[launch(In("p"), Out("p"), outputs=CELLS.fields)]), (3, 9), VALUES),
}

NUMBERS = (-(1 << 62), -2, -1, 0, 1, 2, 3, 5, 7, 64, 4096, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1)
WORDS = ("", "u", "v", "k", "p", "x", "<f4", "<f8", "<i8", "<c8", "|b1", ">f4", "O", "V8", "<U4", "M8[s]", "f", "no",
         "device", "host", "all", "inside", "key", "rows", "blocks", "add", "maximum", "nan", "overflow", "least",
         "greatest", "periodic", "mirrored", "given", "double", "long long", "\0", "é")
FLOATS = (-1.0, 0.0, 0.5, 1e300, float("nan"), float("inf"), float("-inf"))


def parts(value: Any, of: Any) -> Iterator[tuple[Any, Any]]:
    """Everything within a message, with its annotation."""
    yield value, of
    if dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name), hints[field.name])
    elif isinstance(value, tuple):
        for item in value:
            yield from parts(item, typing.get_args(of)[0])


def pool() -> dict[str, list[Any]]:
    """Return other members for each union of messages."""
    members: dict[str, list[Any]] = {}
    for case in ASKED.values():
        for value, of in parts(case, PlanCase):
            if isinstance(of, types.UnionType) and value is not None:
                members.setdefault(str(of), []).append(value)
    return members


POOL = pool()


def changed(value: Any, of: Any, source: random.Random) -> Any:
    """Return a message with one thing changed somewhere."""
    others = POOL.get(str(of))
    if others and source.random() < 0.3:
        return source.choice(others)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return source.choice(NUMBERS)
    if isinstance(value, float):
        return source.choice(FLOATS)
    if isinstance(value, str):
        return source.choice(WORDS)
    if isinstance(value, bytes):
        return source.choice((b"", value[:-1], value + b"\0", b"\xff" * len(value)))
    if value is None:
        return None
    if isinstance(value, tuple):
        place = source.randrange(len(value)) if value else 0
        way = source.randrange(5) if value else 4
        if way == 0:
            return value[:place] + value[place + 1:]
        if way == 1:
            return (*value[:place], value[place], *value[place:])
        if way == 2 and len(value) > 1:
            return (value[-1], *value[1:-1], value[0])
        if way == 3 or not value:
            return () if value else value
        return (*value[:place], changed(value[place], typing.get_args(of)[0], source), *value[place + 1:])
    hints = typing.get_type_hints(type(value))
    # Larger parts have more that can be changed.
    names = [each.name for each in dataclasses.fields(value)]
    weights = [sum(1 for _ in parts(getattr(value, name), hints[name])) for name in names]
    name, = source.choices(names, weights) if names else ("",)
    return replace(value, **{name: changed(getattr(value, name), hints[name], source)}) if name else value


def bounded(case: PlanCase) -> PlanCase:
    """Return a case without the loops that would merely take long."""
    steps = tuple(replace(step, steps=min(step.steps, 5)) if isinstance(step, IterateStep) else step
                  for step in case.plan.steps)
    return replace(case, plan=replace(case.plan, steps=steps))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "null") as worker:
        for number, signature, grid, count in ((1, ROWS, None, 6), (2, ONE, None, 6), (3, CELLS, GRID, 1)):
            put = plan((PutStep(), ToDeviceStep(), KeepStep(0, "x", "device")), signature, count=count)
            inputs = tuple(replace(each, positions=(each.partition,) if grid else ()) for each in put.inputs)
            run(worker, PlanCase(replace(put, inputs=inputs), (number,), (), payload=4096))
        yield worker


def run(worker: Bench, case: PlanCase) -> None:
    key, encoded = sealed(case.plan)
    request = Run(1, 1, 30.0, key, encoded, case.vrdds, case.values, results=case.results, profile=case.profile)
    descriptors = []
    if case.payload > 0:
        with Payload.create(min(case.payload, 1 << 20)) as payload:
            descriptors.append(payload.release())
    _, results = worker.process.handle(request, descriptors)
    close_all(results)


@pytest.mark.parametrize("name", ASKED)
def test_what_is_changed_here_runs_as_it_is(worker: Bench, name: str):
    for _ in range(3):
        try:
            run(worker, ASKED[name])
        except PlanError as error:      # the device computes nothing, and so finds keys that are none
            assert "numKeys=3 promises" in str(error)


def test_a_plan_that_has_a_partition_twice_is_refused(worker: Bench):
    """Refuse it, as nobody could give back the memory of the first."""
    put = ASKED["put"]
    inputs = tuple(replace(each, partition=0) for each in put.plan.inputs)
    with pytest.raises(PlanError, match="a plan has a partition twice"):
        run(worker, replace(put, plan=replace(put.plan, inputs=inputs)))


def tried(worker: Bench, name: str, seed: int, count: int) -> dict[str, int]:
    """Run a plan changed at random places; how many ran, and how many were refused by which error."""
    source, outcomes = random.Random(f"{name} {seed}"), dict[str, int]()
    for number in range(count):
        case = ASKED[name]
        for _ in range(source.choice((1, 1, 1, 2, 3))):
            case = changed(case, PlanCase, source)
        case = bounded(case)
        print(f"{name}, seed {seed}, number {number}: {case}")
        try:
            run(worker, case)
            outcome = "ran"
        except VisparkError as error:
            outcome = type(error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


@pytest.mark.parametrize("name", ASKED)
def test_a_changed_plan_runs_or_is_refused_with_a_typed_error(worker: Bench, name: str):
    before = len(worker.process._names.describe(1, ())[1])
    outcomes = tried(worker, name, 0, 300)
    assert len(outcomes) > 1
    assert len(worker.process._names.describe(1, ())[1]) <= before
    for number in (1, 2, 3, 9):
        worker.process._forget((number,))
