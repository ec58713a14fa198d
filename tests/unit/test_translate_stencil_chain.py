"""Stencils in one pass over memory give, bit for bit, what they give one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from tests.golden import grids
from tests.golden.cases_stencils import values
from tests.golden.harness import AS_ON_GPU
from vispark.translate import (
    ChainPart,
    ChainSurroundings,
    ElementField,
    TranslationError,
    coordinate,
    extent,
    passes_of,
    specialise_chain,
    stencil,
    trace,
)

pytestmark = pytest.mark.slow

NAMES = ("u", "v", "w")
#: As deep as the chains below reach.
GHOST = 4
ChainFields = dict[str, np.ndarray]


@stencil
def flux(u, v, k):
    return {"w": k * (u[0, 1] - u[-1, 0]) + v[1, -1], "v": v[0, 0] / k - u[1, 1]}


@stencil
def relax(u, w, k):
    return {"u": u[0, 0] + k * (u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - w[0, 0] - 4 * u[0, 0])}


@stencil
def placed(u, v):
    new = u[-1, 1] + 0.5 * v[1, 0] + coordinate(0) + 0.25 * coordinate(1) / extent(1)
    return {"u": new, "w": new - v[0, 0]}


@stencil
def differences(u):
    return {"w": u[0, 1] - u[-1, 0]}


def doubled(v):
    return {"v": 2 * v}


CHAIN = [(flux, (0.3,)), (doubled, ()), (placed, ()), (relax, (np.float32(0.2),))]

#: How fields continue below and above y and x, in C++.
NUMBER = ("0x1p-1f",) * 4
TALL = ("mirrored", "mirrored", "0x1p-2f", "-0x2p0f")
ROUND = ("periodic", "periodic", "mirrored", "mirrored")
MIXED = ("mirrored", "0x1p-2f", "-0x2p0f", "mirrored")


def parts(chain, dtype: str = "float32") -> list[ChainPart]:
    fields = tuple(ElementField(name, dtype) for name in NAMES)
    return [ChainPart(trace(fn, args), fields, args) for fn, args in chain]


def beyond(sides, ghost: int = 8) -> ChainSurroundings:
    return ChainSurroundings(tuple((name, sides) for name in NAMES), (ghost, ghost))


def continued(cells: np.ndarray, sides: tuple[str, ...]) -> np.ndarray:
    """Return an array with ghosts, axis by axis."""
    for axis, (below, above) in enumerate([sides[:2], sides[2:]]):
        width = [(GHOST, GHOST) if each == axis else (0, 0) for each in (0, 1)]
        padded = np.pad(cells, width, mode="wrap" if below == "periodic" else "symmetric")
        for side, rule in ((np.s_[:GHOST], below), (np.s_[-GHOST:], above)):
            if rule not in ("periodic", "mirrored"):
                padded[side if axis == 0 else (slice(None), side)] = float.fromhex(rule.rstrip("f"))
        cells = padded
    return cells


def apart(chain, fields: ChainFields, sides) -> ChainFields:
    """Run the stencils one after the other, each with all ghosts filled anew."""
    for fn, args in chain:
        padded = {name: continued(array, sides) for name, array in fields.items()}
        kernel = grids.kernel_of(fn, padded, 2, *args)
        new = grids.run(kernel, kernel.values(trace(fn, args), args), padded, (GHOST,) * 2)
        fields = fields | {output.name: array for output, array in zip(kernel.outputs, new, strict=True)}
    return fields


def arguments(chain, fields: ChainFields) -> list:
    """Return the arguments of a chain: those of its stencils, one after the other."""
    return [value for fn, args in chain
            for value in grids.kernel_of(fn, fields, 2, *args).values(trace(fn, args), args)]


@pytest.mark.parametrize("frame", [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")])
@pytest.mark.parametrize("sides", [TALL, ROUND], ids=["tall", "round"])
def test_a_chain_is_its_stencils_apart(sides, frame):
    fields = {name: values((37, 531), "float32", seed) for seed, name in enumerate(NAMES)}
    # What is divided is taken again here.
    fields["v"][20, 300] = np.inf
    wanted = apart(CHAIN, fields, sides)
    kernel = specialise_chain(parts(CHAIN), beyond(sides), dims=2)
    assert kernel.halo == ((2, 3), (2, 2)) and [each.name for each in kernel.outputs] == ["v", "w", "u"]
    padded = {name: continued(array, sides) for name, array in fields.items()}
    cells = grids.run(kernel, arguments(CHAIN, padded), padded, (GHOST,) * 2, options=frame)
    for output, array in zip(kernel.outputs, cells, strict=True):
        assert np.array_equal(array, wanted[output.name], equal_nan=True), output.name


@pytest.mark.parametrize("frame", [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")])
def test_a_part_of_the_grid_by_itself(frame):
    chain = CHAIN[:3]
    fields = {name: values((40, 300), "float32", seed) for seed, name in enumerate(NAMES)}
    wanted = apart(chain, fields, MIXED)
    kernel = specialise_chain(parts(chain), beyond(MIXED), dims=2)
    # A patch that begins in the middle along x, and the box of cells within it; what others have is in its ghosts.
    padded = {name: continued(array, MIXED)[:, 101:] for name, array in fields.items()}
    cells = grids.run(kernel, arguments(chain, padded), padded, (GHOST,) * 2, box=((3, 2), (40, 197)), origin=(0, 101),
                      shape=(40, 300), options=frame)
    for output, array in zip(kernel.outputs, cells, strict=True):
        assert np.array_equal(array[3:40, 2:197], wanted[output.name][3:, 103:298]), output.name
        assert np.all(array[:3] == 99) and np.all(array[:, :2] == 99) and np.all(array[:, 197:] == 99)


@pytest.mark.parametrize("frame", [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")])
def test_what_is_made_anew_before_it_is_read_is_not_written(frame):
    chain = [(differences, ()), (flux, (0.3,)), (relax, (np.float32(0.2),))]
    fields = {name: values((20, 90), "float32", seed) for seed, name in enumerate(NAMES)}
    wanted = apart(chain, fields, TALL)
    kernel = specialise_chain(parts(chain), beyond(TALL), dims=2)
    padded = {name: continued(array, TALL) for name, array in fields.items()}
    cells = grids.run(kernel, arguments(chain, padded), {name: padded[name] for name in kernel.fields}, (GHOST,) * 2,
                      options=frame)
    for output, array in zip(kernel.outputs, cells, strict=True):
        assert np.array_equal(array, wanted[output.name]), output.name


WEIGHTS = np.float16([0.5, 0.25])


@stencil
def weighted(u, k, z, share):
    return {"u": u[0, 0] + k * u[1, 0] + abs(z) * u[0, -1] + WEIGHTS[1] * u[-1, 0] - share[0]}


#: Arguments of types that C++ lacks.
LACKING = (np.float16(0.1), np.complex64(0.3 + 0.4j), np.float16([0.3]))


@pytest.mark.parametrize("frame", [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")])
def test_arguments_of_types_that_only_the_cells_functions_know(frame):
    chain = [(weighted, LACKING), (relax, (np.float16(0.2),)), (weighted, (0.1, np.complex64(0.3j), np.float32([0.2])))]
    fields = {name: values((20, 90), "float32", seed) for seed, name in enumerate(NAMES)}
    wanted = apart(chain, fields, TALL)
    kernel = specialise_chain(parts(chain), beyond(TALL), dims=2)
    padded = {name: continued(array, TALL) for name, array in fields.items()}
    cells, = grids.run(kernel, arguments(chain, padded), padded, (GHOST,) * 2, options=frame)
    assert np.array_equal(cells, wanted["u"])


def test_a_gpus_compiler_knows_the_types_of_arguments():
    kernel = specialise_chain(parts([(weighted, LACKING), (relax, (np.float16(0.2),))]), beyond(TALL), dims=2)
    assert compile_cubin(Source(kernel.source, "chain.cu", kernel.options), kernel.name, "sm_90a").code


def test_sequences_are_parted_where_that_moves_least():
    steps = [(relax, (0.1,))] * 21
    counts, moved = passes_of(parts(steps), beyond(NUMBER), dims=2)
    assert sum(counts) == 21 and max(counts) > 2 and moved < 21 * 12 / 2
    counts, moved = passes_of(parts(steps), beyond(NUMBER, ghost=1), dims=2)
    assert counts == (1,) * 21 and 21 * 12 <= moved < 21 * 13
    assert max(passes_of(parts(steps), beyond(NUMBER, ghost=2), dims=2)[0]) == 2


@stencil
def wide(u):
    return {"u": u[0, 2] - u[0, 0]}


@stencil
def endless(u):
    while u[0, 0] > 0:
        pass
    return {"u": u[0, 1]}


@pytest.mark.parametrize(("fn", "dtype", "sides", "reason"), [
    (wide, "float32", NUMBER, "reads further than the next cells"),
    (endless, "float32", NUMBER, "may go on for long"),
    (doubled, "float16", NUMBER, "not of types of 4 or of 8 bytes")])
def test_why_stencils_are_passes_of_their_own(fn, dtype, sides, reason):
    chain = parts([(fn, ()), (fn, ())], dtype)
    assert passes_of(chain, beyond(sides), dims=2)[0] == (1, 1)
    with pytest.raises(TranslationError, match=reason):
        specialise_chain(chain, beyond(sides), dims=2)
