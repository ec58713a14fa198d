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
    Field,
    StencilKernel,
    TranslationError,
    coordinate,
    most_steps,
    specialise_steps,
    stencil,
    trace,
)

FOLDER = Path(__file__).parents[1] / "golden" / "stencils"
UPDATE = os.environ.get("VISPARK_UPDATE_GOLDEN") == "1"
FRAMES = [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")]
Fields = dict[str, np.ndarray]


@stencil
def wave(u, before, k):
    faces = u[1, 0, 0] + u[-1, 0, 0] + u[0, 1, 0] + u[0, -1, 0] + u[0, 0, 1] + u[0, 0, -1]
    return {"u": 2 * u[0, 0, 0] - before[0, 0, 0] + k * (faces - 6 * u[0, 0, 0]), "before": u[0, 0, 0]}


@stencil
def leaning(u, k):
    return u[0, 1, -1] + k * (u[0, -1, 1] - u[1, 0, 0]) + coordinate(2) * 0.01 + coordinate(0)


def described(fields: Fields) -> list[Field]:
    return [Field(name, array.dtype.str) for name, array in fields.items()]


def filled(fields: Fields, ghost: int, periodic: tuple[bool, ...]) -> Fields:
    """Ghosts of periodic axes as the cells they stand for; those of others as they are."""
    found = {}
    for name, array in fields.items():
        inner = tuple(slice(None) if not wrap else slice(ghost, -ghost) for wrap in periodic)
        width = [(ghost, ghost) if wrap else (0, 0) for wrap in periodic]
        found[name] = np.pad(array[inner], width, mode="wrap")
    return found


def apart(fn, fields: Fields, args: tuple, steps: int, periodic: tuple[bool, ...], shape) -> Fields:
    """The steps one after the other, on the whole grid with its ghosts."""
    inner = np.s_[steps:-steps, steps:-steps, steps:-steps]
    kernel = grids.kernel_of(fn, fields, 3, *args)
    for _ in range(steps):
        fields = filled(fields, steps, periodic)
        new = grids.run(kernel, kernel.values(trace(fn, args), args), fields, (steps,) * 3, shape=shape)
        fields = {name: array.copy() for name, array in fields.items()}
        for output, array in zip(kernel.outputs, new, strict=True):
            fields[output.name][inner] = array
    return {name: array[inner] for name, array in fields.items()}


def at_once(fn, fields: Fields, args: tuple, steps: int, periodic: tuple[bool, ...]) -> StencilKernel:
    return specialise_steps(trace(fn, args), described(fields), args, dims=3, steps=steps,
                            kept=[not wrap for wrap in periodic])


AXES = {"fixed": (False,) * 3, "periodic": (True,) * 3, "both": (True, False, True)}
LOOPS = [(heat, ("",), "float32", 3), (heat, ("",), "float32", 2), (heat, ("",), "float64", 3),
         (wave, ("u", "before"), "float32", 2), (leaning, ("",), "float64", 2)]


def cases() -> Iterator:
    """Each loop on axes of each kind; for a GPU's way, which takes seconds to compile, the first loop alone."""
    for loop, axes, frame in itertools.product(LOOPS, AXES, FRAMES):
        if loop is LOOPS[0] or axes == "both" or frame.id == "host":
            fn, _, dtype, steps = loop
            yield pytest.param(*loop, AXES[axes], *frame.values,
                               id=f"{fn.function.__name__}-{dtype}-{steps}-{axes}-{frame.id}")


@pytest.mark.parametrize(("fn", "names", "dtype", "steps", "periodic", "frame"), [*cases()])
def test_steps_at_once_are_the_steps_apart(fn, names, dtype, steps, periodic, frame):
    shape = (9, 35, 150)
    fields = {name: values(tuple(n + 2 * steps for n in shape), dtype, seed) for seed, name in enumerate(names)}
    wanted = apart(fn, fields, (0.1,), steps, periodic, shape)
    fields, kernel = filled(fields, steps, periodic), at_once(fn, fields, (0.1,), steps, periodic)
    assert kernel.steps == steps and kernel.halo == ((steps, steps),) * 3 and kernel.shared <= 163 * 1024
    found = grids.run(kernel, kernel.values(trace(fn, (0.1,)), (0.1,)), fields, (steps,) * 3, shape=shape,
                      options=frame)
    for output, array in zip(kernel.outputs, found, strict=True):
        assert np.array_equal(array, wanted[output.name])


@pytest.mark.parametrize("frame", FRAMES)
def test_a_part_of_the_grid_by_itself(frame):
    shape, steps = (8, 40, 300), 3
    whole = values(tuple(n + 2 * steps for n in shape))
    wanted = apart(heat, {"": whole}, (0.1,), steps, (False,) * 3, shape)[""]
    kernel = at_once(heat, {"": whole}, (0.1,), steps, (False,) * 3)
    given = kernel.values(trace(heat, (0.1,)), (0.1,))
    # A patch in the middle along x, at the end along y, with its box of cells smaller still.
    patch = whole[:, 20:, 100:100 + 170 + 2 * steps]
    found, = grids.run(kernel, given, {"": patch}, (steps,) * 3, box=((1, 2, 5), (8, 20, 167)), origin=(0, 20, 100),
                       shape=shape, options=frame)
    assert np.array_equal(found[1:8, 2:20, 5:167], wanted[1:8, 22:40, 105:267])
    outside = np.ones(found.shape, bool)
    outside[1:8, 2:20, 5:167] = False
    assert np.all(found[outside] == 99)


def test_the_source_is_the_one_that_is_kept():
    kernel = at_once(heat, {"": values((4, 4, 4))}, (0.1,), 3, (False, False, True))
    file, source = FOLDER / f"{kernel.name}.cu", f"// kernels: {kernel.name}\n{kernel.source}"
    if UPDATE:
        file.write_text(source)
    assert file.read_text() == source, f"{file.name} differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"


def test_which_stencils_steps_can_be_done_at_once():
    def most(fn, dims=3, names=("",), dtype="float32", args=(0.1,)):
        return most_steps(trace(fn, args), [Field(name, dtype) for name in names], args, dims=dims)

    assert most(heat) == 3 and most(heat, dtype="float64") == 3 and most(wave, names=("u", "before")) == 2
    by_name = {case.name: case for case in CASES}
    for name, dims in (("box", 3), ("wide", 3), ("variable", 3), ("two_outputs", 3), ("life", 2), ("plain_cells", 3)):
        case = by_name[name]
        assert most_steps(trace(case.fn, case.args), described(case.fields), case.args, dims=dims) == 1, name
    assert most(heat, dtype="float16") == 1 and most(heat, dtype="complex64") == 1


@pytest.mark.parametrize(("name", "reason"), [
    ("box", "reads diagonally across planes"), ("wide", "reads further than the next cells"),
    ("variable", "does not write just the fields that it reads"), ("convection", "the grid has fewer than 3 axes")])
def test_why_steps_are_done_apart(name: str, reason: str):
    case = next(case for case in CASES if case.name == name)
    with pytest.raises(TranslationError, match=reason):
        specialise_steps(trace(case.fn, case.args), described(case.fields), case.args, dims=len(case.ghost), steps=2,
                         kept=[True] * len(case.ghost))
