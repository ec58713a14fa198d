"""Several time steps at once give, bit for bit, what the steps give one after the other."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.golden import grids
from tests.golden.cases_stencils import CASES, heat, values
from tests.golden.harness import AS_ON_GPU
from vispark.translate import (
    ChainPart,
    ElementField,
    StencilKernel,
    Surroundings,
    TranslationError,
    coordinate,
    specialise_steps,
    stencil,
    stepped,
    trace,
    why_not_stepped,
)

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "golden" / "stencils"
UPDATE = os.environ.get("VISPARK_UPDATE_GOLDEN") == "1"
FRAMES = [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")]
StepFields = dict[str, np.ndarray]
PhaseChain = list[tuple]


@stencil
def wave(u, before, k):
    faces = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
    return {"u": 2 * u[0, 0, 0] - before[0, 0, 0] + k * (faces - 6 * u[0, 0, 0]), "before": u[0, 0, 0]}


@stencil
def gradient(u):
    return {"d": u[1, 0, 0] - u[0, 1, 0] + coordinate(1) * 0.5 - u[0, 0, -1]}


@stencil
def spread(u, d, k):
    return {"u": u[0, 0, 0] + k * (d[-1, 0, 0] - d[0, 0, 1] + d[0, -1, 0] + u[0, 1, 1])}


@stencil
def conduct(u, c, k):
    return {"u": u[0, 0, 0] + k * (c[1, 0, 0] * (u[1, 0, 0] - u[0, 0, 0]) + c[0, 0, -1] * (u[0, 0, -1] - u[0, 1, 0]))}


@stencil
def leaning(u, k):
    return u[0, 1, -1] / 7 + k * (u[0, -1, 1] - u[1, 0, 0]) + coordinate(2) * 0.01 + coordinate(0)


def described(fields: StepFields) -> list[ElementField]:
    return [ElementField(name, array.dtype.str) for name, array in fields.items()]


RimKinds = tuple[str, ...]

FIXED, PERIODIC, MIRRORED = ("kept",) * 6, ("periodic",) * 6, ("mirrored",) * 6
BOTH = ("periodic", "periodic", "kept", "kept", "periodic", "periodic")
MIXED = ("mirrored", "kept", "kept", "mirrored", "periodic", "periodic")
ENDS = ("mirrored", "mirrored", "kept", "mirrored", "mirrored", "kept")
RIMS = {"fixed": FIXED, "periodic": PERIODIC, "both": BOTH, "mirrored": MIRRORED, "mixed": MIXED, "ends": ENDS}


def filled(fields: StepFields, ghost: int, rims: RimKinds) -> StepFields:
    """Fill the ghosts of periodic and mirrored sides with the cells they stand for; those of others stay as they are.
    """
    arrays = {}
    for name, array in fields.items():
        array = array.copy()
        for axis in range(3):
            cells, extent = np.moveaxis(array, axis, 0), array.shape[axis] - 2 * ghost
            low, high = rims[2 * axis:2 * axis + 2]
            if low != "kept":
                cells[:ghost] = cells[extent:extent + ghost] if low == "periodic" else cells[ghost:2 * ghost][::-1]
            if high != "kept":
                cells[-ghost:] = cells[ghost:2 * ghost] if high == "periodic" else cells[extent:extent + ghost][::-1]
        arrays[name] = array
    return arrays


def apart(chain: PhaseChain, fields: StepFields, rims: RimKinds, ghost: int, shape) -> StepFields:
    """Run the steps one after the other, on the whole grid with its ghosts."""
    inner = np.s_[ghost:-ghost, ghost:-ghost, ghost:-ghost]
    for fn, args in chain:
        fields = filled(fields, ghost, rims)
        kernel = grids.kernel_of(fn, fields, 3, *args)
        new = grids.run(kernel, kernel.values(trace(fn, args), args), fields, (ghost,) * 3, shape=shape)
        for output, array in zip(kernel.outputs, new, strict=True):
            fields[output.name][inner] = array
    return {name: array[inner] for name, array in fields.items()}


def around(fields: StepFields, rims: RimKinds, ghost: int = 3) -> Surroundings:
    return Surroundings(tuple((name, rims) for name in fields), (ghost,) * 3)


def at_once(fn, fields: StepFields, args: tuple, steps: int, rims: RimKinds) -> StencilKernel:
    return specialise_steps([ChainPart(trace(fn, args), tuple(described(fields)), args)] * steps, around(fields, rims))


def chained(chain: PhaseChain, fields: StepFields, rims: RimKinds) -> StencilKernel:
    return specialise_steps([ChainPart(trace(fn, args), tuple(described(fields)), args) for fn, args in chain],
                            around(fields, rims))


LOOPS = [(heat, ("",), "float32", 3), (heat, ("",), "float32", 2), (heat, ("",), "float64", 3),
         (wave, ("u", "before"), "float32", 2), (leaning, ("",), "float64", 2)]
#: For a GPU's way, which takes seconds to compile, some loops alone.
ON_GPU = {("heat", "float32", 3, "both"), ("wave", "float32", 2, "mixed"), ("leaning", "float64", 2, "ends")}


def cases() -> Iterator:
    """Yield each loop on axes of each kind."""
    for loop, rims, frame in itertools.product(LOOPS, RIMS, FRAMES):
        fn, _, dtype, steps = loop
        on_host = frame.id == "host" and (loop is not LOOPS[1] or rims == "fixed")
        if on_host or (frame.id == "gpu" and (fn.function.__name__, dtype, steps, rims) in ON_GPU):
            yield pytest.param(*loop, RIMS[rims], *frame.values,
                               id=f"{fn.function.__name__}-{dtype}-{steps}-{rims}-{frame.id}")


@pytest.mark.parametrize(("fn", "names", "dtype", "steps", "rims", "frame"), [*cases()])
def test_steps_at_once_are_the_steps_apart(fn, names, dtype, steps, rims, frame):
    shape = (9, 35, 150)
    fields = {name: values(tuple(n + 2 * steps for n in shape), dtype, seed) for seed, name in enumerate(names)}
    for array in fields.values():
        # What leaning divides is taken again here.
        array[6, 20, 90] = np.inf
    wanted = apart([(fn, (0.1,))] * steps, fields, rims, steps, shape)
    fields, kernel = filled(fields, steps, rims), at_once(fn, fields, (0.1,), steps, rims)
    assert kernel.steps == steps and kernel.halo == ((steps, steps),) * 3 and kernel.shared <= 163 * 1024
    results = grids.run(kernel, kernel.values(trace(fn, (0.1,)), (0.1,)), fields, (steps,) * 3, shape=shape,
                        options=frame)
    for output, array in zip(kernel.outputs, results, strict=True):
        assert np.array_equal(array, wanted[output.name], equal_nan=True)


#: Of one field; of two, of which the first is made, read and lost on the way; of one that is only read; and with
#: arguments of a type that C++ lacks.
CHAINS = {"one": ([(heat, (0.1,)), (leaning, (0.2,)), (heat, (0.3,))], ("",)),
          "made": ([(gradient, ()), (spread, (0.1,))], ("u", "d")),
          "given": ([(conduct, (0.1,)), (conduct, (0.2,))], ("u", "c")),
          "halves": ([(heat, (np.float16(0.1),)), (leaning, (np.float16(0.2),))], ("",))}


@pytest.mark.parametrize(("chain", "rims", "frame"), [
    *((chain, rims, ()) for chain in ("one", "made", "given") for rims in ("periodic", "mirrored", "mixed")),
    ("halves", "mirrored", ()), ("one", "mirrored", AS_ON_GPU), ("made", "mixed", AS_ON_GPU)])
def test_stencils_at_once_are_the_stencils_apart(chain: str, rims: str, frame):
    stencils, names = CHAINS[chain]
    shape, steps = (9, 35, 150), len(stencils)
    fields = {name: values(tuple(n + 2 * steps for n in shape), "float32", seed) for seed, name in enumerate(names)}
    wanted = apart(stencils, fields, RIMS[rims], steps, shape)
    fields, kernel = filled(fields, steps, RIMS[rims]), chained(stencils, fields, RIMS[rims])
    arguments = [value for fn, args in stencils
                 for value in grids.kernel_of(fn, fields, 3, *args).values(trace(fn, args), args)]
    # What is made before it is read comes from memory only where its cells beyond the grid are kept.
    assert set(kernel.fields) == set(names) - ({"d"} if "kept" not in RIMS[rims] else set())
    results = grids.run(kernel, arguments, fields, (steps,) * 3, shape=shape, options=frame)
    for output, array in zip(kernel.outputs, results, strict=True):
        assert np.array_equal(array, wanted[output.name]), output.name


@pytest.mark.parametrize(("rims", "frame"), [("fixed", ()), ("mirrored", ()), ("mirrored", AS_ON_GPU)])
def test_a_part_of_the_grid_by_itself(rims, frame):
    shape, steps = (8, 40, 300), 3
    whole = values(tuple(n + 2 * steps for n in shape))
    wanted = apart([(heat, (0.1,))] * steps, {"": whole}, RIMS[rims], steps, shape)[""]
    whole = filled({"": whole}, steps, RIMS[rims])[""]
    kernel = at_once(heat, {"": whole}, (0.1,), steps, RIMS[rims])
    arguments = kernel.values(trace(heat, (0.1,)), (0.1,))
    # A patch in the middle along x, at the end along y, with its box of cells smaller still.
    patch = whole[:, 20:, 100:100 + 170 + 2 * steps]
    cells, = grids.run(kernel, arguments, {"": patch}, (steps,) * 3, box=((1, 2, 5), (8, 20, 167)), origin=(0, 20, 100),
                       shape=shape, options=frame)
    assert np.array_equal(cells[1:8, 2:20, 5:167], wanted[1:8, 22:40, 105:267])
    outside = np.ones(cells.shape, bool)
    outside[1:8, 2:20, 5:167] = False
    assert np.all(cells[outside] == 99)


def test_the_source_is_the_one_that_is_kept():
    kernel = at_once(heat, {"": values((4, 4, 4))}, (0.1,), 3, ("kept",) * 4 + ("periodic",) * 2)
    file, source = FOLDER / "heat_3_steps.cu", f"// kernels: {kernel.name}\n{kernel.source}"
    if UPDATE:
        file.write_text(source)
    assert file.read_text() == source, f"{file.name} differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"


def test_which_stencils_steps_can_be_done_at_once():
    def most(fn, names=("",), dtype="float32", args=(0.1,)):
        return longest(fn, [ElementField(name, dtype) for name in names], args)

    assert most(heat) == 3 and most(heat, dtype="float64") == 3 and most(wave, names=("u", "before")) == 2
    by_name = {case.name: case for case in CASES}
    for name in ("box", "wide", "two_outputs", "plain_cells"):
        case = by_name[name]
        assert longest(case.fn, described(case.fields), case.args) == 1, name
    assert most(heat, dtype="float16") == 1 and most(heat, dtype="complex64") == 1


def longest(fn, fields, args) -> int:
    """Return the most steps that are one pass."""
    parts = [ChainPart(trace(fn, args), tuple(fields), args)]
    rims = Surroundings(tuple((each.name, FIXED) for each in fields), (3, 3, 3))
    return max((steps for steps in (2, 3) if not why_not_stepped(parts * steps, rims)), default=1)


def test_sequences_are_parted_where_that_moves_least():
    def counts(steps: int, ghost: int = 3, names=("",), fn=heat) -> tuple[int, ...]:
        fields = tuple(ElementField(name, "float32") for name in names)
        parts = [ChainPart(trace(fn, (0.1,)), fields, (0.1,))] * steps
        return stepped(parts, around(dict.fromkeys(names), PERIODIC, ghost))[0]

    assert counts(6) == (3, 3) and sorted(counts(4)) in ([1, 3], [2, 2]) and counts(3, ghost=1) == (1, 1, 1)
    assert counts(3, ghost=2) in ((1, 2), (2, 1)) and counts(4, names=("u", "before"), fn=wave) == (2, 2)


@pytest.mark.parametrize(("name", "reason"), [
    ("box", "reads diagonally across planes"), ("wide", "reads further than the next cells")])
def test_why_steps_are_done_apart(name: str, reason: str):
    case = next(case for case in CASES if case.name == name)
    part = ChainPart(trace(case.fn, case.args), tuple(described(case.fields)), case.args)
    with pytest.raises(TranslationError, match=reason):
        specialise_steps([part, part], around(case.fields, PERIODIC))


def test_which_boundaries_keep_steps_apart():
    part = ChainPart(trace(spread, (0.1,)), (ElementField("u", "float32"), ElementField("d", "float32")), (0.1,))
    for u, d, reason in [(PERIODIC, MIRRORED, "periodic along an axis, and some are not"), (MIRRORED, FIXED, "")]:
        why = why_not_stepped([part, part], Surroundings((("u", u), ("d", d)), (3, 3, 3)))
        assert reason in why if reason else not why
