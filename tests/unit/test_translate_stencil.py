"""Functions of a grid's cells: what their kernels give is what the functions give, cell by cell, bit for bit."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.golden import grids
from tests.golden.cases_stencils import CASES, GridCase, values, walls
from tests.golden.harness import AS_ON_GPU
from vispark.translate import (
    ElementField,
    ElementSpec,
    TranslationError,
    specialise,
    specialise_stencil,
    stencil,
    trace,
)
from vispark.translate.language.stencil import coordinate, extent

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "golden" / "stencils"
UPDATE = os.environ.get("VISPARK_UPDATE_GOLDEN") == "1"
FRAMES = [pytest.param((), id="host"), pytest.param(AS_ON_GPU, id="gpu")]


def flat(result: object) -> list:
    """Return the numbers of a result, in the outputs' order."""
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple) else [result]


def expected(case: GridCase, outputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the function's results for each cell, as the outputs' arrays."""
    results = grids.plain(case.fn, case.fields, case.ghost, *case.args)
    return [np.array([flat(one)[number] for one in results]).reshape(output.shape)
            for number, output in enumerate(outputs)]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if not case.places])
def test_a_kernel_gives_what_the_function_gives(case: GridCase, frame: tuple[str, ...]):
    outputs = grids.translated(case.fn, case.fields, case.ghost, *case.args, options=frame)
    for one, other in zip(outputs, expected(case, outputs), strict=True):
        assert one.dtype == other.dtype
        if one.dtype.kind == "c":
            # The host's compiler has instructions for complex products, which round once.
            np.testing.assert_allclose(one, other, rtol=8 * np.finfo(one.dtype).eps)
        else:
            assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@pytest.mark.parametrize("frame", FRAMES)
def test_coordinates_are_those_of_the_whole_grid(frame: tuple[str, ...]):
    u = values((6, 40))
    cells, = grids.translated(walls, {"": u}, (1, 1), origin=(3, 10), shape=(7, 100), options=frame)
    wanted = u[1:-1, 1:-1] + np.arange(10, 48, dtype="float32") * (u[1:-1, 2:] - u[1:-1, :-2])
    wanted[3] = 0
    assert np.array_equal(cells, wanted)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("box", [((0, 0, 0), (1, 1, 1)), ((1, 2, 3), (3, 5, 38)), ((2, 0, 1), (4, 7, 2)),
                                 ((0, 3, 41), (4, 4, 43)), ((-1, -1, -1), (5, 8, 44))])
def test_a_box_of_cells_and_no_other_is_computed(box: grids.CellBox, frame: tuple[str, ...]):
    @stencil
    def shifted(u):
        return u[1, -1, 1] + 2 * u[-1, 1, -1]

    u = values((8, 11, 47))
    cells, = grids.translated(shifted, {"": u}, (2, 2, 2), box=box, options=frame)
    wanted = np.full(cells.shape, 99, "float32")
    inner = tuple(slice(max(0, low), min(high, end)) for low, high, end in zip(*box, cells.shape, strict=True))
    at = np.s_[2:-2, 2:-2, 2:-2]
    full = np.roll(u, (-1, 1, -1), (0, 1, 2))[at] + 2 * np.roll(u, (1, -1, 1), (0, 1, 2))[at]
    wanted[inner] = full[inner]
    assert np.array_equal(cells, wanted)


# -- stencils made at random ------------------------------------------------------------------------------------------

def written(seed: int) -> tuple[str, dict[str, str], tuple[int, ...]]:
    """Return the source of a random stencil ``made``, its fields' dtypes and the ghosts it needs."""
    random = np.random.default_rng(seed)
    dims, width = int(random.integers(1, 4)), int(random.integers(0, 4))
    names = ["u", "v", "w"][:int(random.integers(1, 4))]
    dtypes = {name: str(random.choice(["float32", "float64", "float32", "int32", "int16"])) for name in names}
    terms = []
    for name in names:
        for _ in range(int(random.integers(1, 6))):
            offset = random.integers(-width, width + 1, dims)
            factor = round(float(random.uniform(-2, 2)), 3)
            terms.append(f"{factor} * {name}[{', '.join(map(str, offset))}]")
    random.shuffle(terms)
    half = len(terms) // 2
    first, rest = " + ".join(terms[:half]) or "0.5", " - ".join(terms[half:])
    results = [f"{first} + {rest}", f"k * ({rest}) if {terms[0]} > 0 else ({first})", f"({rest}) * ({terms[0]})"]
    count = int(random.integers(1, 4))
    result = results[0] if count == 1 else "{" + ", ".join(
        f'"{name}": {one}' for name, one in zip("uvx", results[:count], strict=False)) + "}"
    head = f"from vispark.translate import stencil\n\n\n@stencil\ndef made({', '.join(names)}, k):\n"
    body = f"{head}    return {result}\n"
    return body, dtypes, (width,) * dims


def loaded(source: str, path: Path) -> ModuleType:
    """Return a module out of its source; a translated function needs a file."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("seed", range(6))
def test_random_stencils_are_those_of_numpy(seed: int, frame: tuple[str, ...], tmp_path: Path):
    source, dtypes, ghost = written(seed)
    fn = loaded(source, tmp_path / f"random_{seed}.py").made
    inner = {1: (150,), 2: (7, 45), 3: (4, 5, 38)}[len(ghost)]
    shape = tuple(n + 2 * g for n, g in zip(inner, ghost, strict=True))
    fields = {name: values(shape, dtype, seed + number) for number, (name, dtype) in enumerate(dtypes.items())}
    random = np.random.default_rng(seed)
    low = tuple(int(random.integers(0, n)) for n in inner)
    high = tuple(int(random.integers(a + 1, n + 1)) for a, n in zip(low, inner, strict=True))
    outputs = grids.translated(fn, fields, ghost, np.float32(0.3), box=(low, high), options=frame)
    case = GridCase("made", fn, fields, ghost, (np.float32(0.3),), False, False)
    box = tuple(map(slice, low, high))
    for one, other in zip(outputs, expected(case, outputs), strict=True):
        # A function's result has one type; where its ways differ, NumPy's common one.
        assert np.array_equal(one[box], other.astype(one.dtype)[box]), source
        assert np.count_nonzero(one == 99) >= one.size - one[box].size


# -- how they are made ------------------------------------------------------------------------------------------------

def source_of(case: GridCase) -> str:
    """Return a case's source as it is kept."""
    kernel = grids.kernel_of(case.fn, case.fields, len(case.ghost), *case.args)
    return f"// kernels: {kernel.name}\n{kernel.source}"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case.golden])
def test_the_source_is_the_one_that_is_kept(case: GridCase):
    file = FOLDER / f"{case.name}.cu"
    if UPDATE:
        file.write_text(source_of(case))
    assert file.read_text() == source_of(case), f"{file.name} differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"


def test_what_a_kernel_tells_of_itself():
    @stencil
    def moved(u, v, shift):
        return {"u": u[-2, 1] + shift, "w": v[0, 0]}

    fields = [ElementField("u", "float32"), ElementField("v", "float64"), ElementField("unread", "int8")]
    kernel = specialise_stencil(trace(moved, (1.5,)), fields, (1.5,), dims=2)
    assert kernel.fields == ("u", "v") and kernel.halo == ((2, 0), (0, 1)) and kernel.options == ("-fmad=false",)
    assert [(one.name, one.dtype) for one in kernel.outputs] == [("u", "float32"), ("w", "float64")]
    assert [one.kind for one in kernel.parameters] == ["input", "input", "output", "output", "region", "argument"]
    assert kernel.values(trace(moved, (1.5,)), (1.5,)) == (1.5,)
    width, rows, planes = kernel.tile
    assert kernel.grid((0, 3, 5), (1, 3 + 2 * rows, 5 + width + 1)) == (2, 2, 1) and planes == 1
    assert kernel == specialise_stencil(trace(moved, (2.5,)), fields, (2.5,), dims=2)


def test_the_halo_of_functions_that_are_given_a_field():
    def ahead(f, step):
        return f[0, 1] * step + f[3, 0]

    @stencil
    def outer(u, c):
        return ahead(u, 2) + ahead(step=3, f=u) - c[-1, 0]

    definition = trace(outer).definition
    assert definition.halo == ((1, 3), (0, 1))


@stencil
def by_closure(u):
    def both():
        return u[0, 1] - u[-2, 0]
    return both()


@stencil
def by_lambda(u):
    both = lambda: u[0, 1] - u[-2, 0]  # noqa: E731 - what is tested
    return both()


@stencil
def by_parameter(u):
    def both(v):
        return v[0, 1] - v[-2, 0]
    return both(u)


@stencil
def by_nested_twice(u):
    def outer():
        def inner(v):
            return v[0, 1] - u[-2, 0]
        return inner(u)
    return outer()


@stencil
def by_two_functions(u):
    def one(v):
        return v[0, 1]

    def other():
        return one(u) - u[-2, 0]
    return other()


@pytest.mark.parametrize("fn", [by_closure, by_lambda, by_parameter, by_nested_twice, by_two_functions])
def test_offsets_may_be_read_in_functions_inside(fn):
    assert trace(fn).definition.halo == ((2, 0), (0, 1))
    u = values((8, 40))
    cells, = grids.translated(fn, {"": u}, (2, 1))
    assert np.array_equal(cells, u[2:-2, 2:] - u[:-4, 1:-1])


def test_locals_may_be_called_as_the_kernels_own_names():
    @stencil
    def bare(u):
        u_1 = u[1] + 10
        return u_1 + u[1] + u[-1]

    @stencil
    def in_a_branch(u):
        total = 0.0
        if u[0] > 0:
            u_1 = u[1] + 10
            coordinate_0 = coordinate(0) + 1
            total = u_1 + u[1] + coordinate_0 * coordinate(0)
        return total

    u = values((14,))
    cells, = grids.translated(bare, {"": u}, (1,))
    assert np.array_equal(cells, (u[2:] + 10 + u[2:]) + u[:-2])
    cells, = grids.translated(in_a_branch, {"": u}, (1,), origin=(3,), shape=(100,))
    at = np.arange(3, 15)
    wanted = np.where(u[1:-1] > 0, (u[2:] + 10 + u[2:]).astype("float64") + at * (at + 1), 0)
    assert (u[1:-1] > 0).any()
    np.testing.assert_allclose(cells, wanted, rtol=1e-6)


def test_a_stencil_may_call_a_stencil():
    @stencil
    def inner(u):
        return u[1] - u[-1]

    @stencil
    def outer(u):
        return u[0] + inner(u)

    u = values((40,))
    cells, = grids.translated(outer, {"": u}, (1,))
    assert np.array_equal(cells, u[1:-1] + (u[2:] - u[:-2]))


def test_arrays_beside_the_fields():
    def weighted(f, w):
        return w[0] * f[-1] + w[1] * f[1]

    @stencil
    def outer(u, w):
        return u[0] + weighted(u, w)

    u, w = values((40,)), np.array([0.25, 0.5], "float32")
    cells, = grids.translated(outer, {"u": u}, (1,), w)
    assert np.array_equal(cells, u[1:-1] + (w[0] * u[:-2] + w[1] * u[2:]))


WEIGHTS = values((3,))


@stencil
def weighted(u, w, i):
    total = u[0, 0] * w[-1] + w[i]
    for j in range(len(w)):
        total = total + w[j] * u[-1, 0]
    return total


@stencil
def weighted_by_captured(u, i):
    total = u[0, 0] * WEIGHTS[-1] + WEIGHTS[i]
    for j in range(len(WEIGHTS)):
        total = total + WEIGHTS[j] * u[-1, 0]
    return total


@stencil
def named(w, u, table):
    return {"u": w[0] * u[1, 0] + table[1, 2] * u[0, -1]}


def test_arrays_beside_the_fields_are_indexed_as_captured_ones():
    u = values((8, 40))
    cells, = grids.translated(weighted, {"": u}, (1, 1), WEIGHTS, 1)
    captured, = grids.translated(weighted_by_captured, {"": u}, (1, 1), 1)
    assert np.array_equal(cells, captured)
    assert np.array_equal(cells.ravel(), grids.plain(weighted, {"": u}, (1, 1), WEIGHTS, 1))
    table = values((2, 3), seed=3)
    cells, = grids.translated(named, {"u": u}, (1, 1), WEIGHTS, table)
    assert np.array_equal(cells, WEIGHTS[0] * u[2:, 1:-1] + table[1, 2] * u[1:-1, :-2])
    kernel = grids.kernel_of(named, {"u": u}, 2, WEIGHTS, table)
    assert kernel.halo == ((0, 1), (1, 0)) and trace(named).definition.halo == ((0, 1), (1, 2))


# -- what is refused --------------------------------------------------------------------------------------------------

U = (ElementField("", "float32"),)


def refused(fn, fields=U, args=(), dims=1, halo=None) -> str:
    with pytest.raises(TranslationError) as caught:
        specialise_stencil(trace(fn, args), fields, args, dims=dims, halo=halo)
    return str(caught.value)


def test_an_offset_beyond_the_halo_is_an_error_at_its_line():
    @stencil
    def reaching(u):
        near = u[0, 1]
        return near + u[-2, 0]

    message = refused(reaching, dims=2, halo=((1, 1), (1, 1)))
    assert "reads 2 cells away along axis 0, and the grid's halo is 1 there; make the Grid with halo=2" in message
    assert "reads 1 cell away" in refused(reaching, dims=2, halo=((1, 1), (0, 0)))
    assert "return near + u[-2, 0]" in message and "^^^^^^^^" in message
    assert "halo" not in str(specialise_stencil(trace(reaching), U, dims=2, halo=((2, 0), (0, 1))).name)


def test_offsets_that_do_not_fit_the_grid():
    @stencil
    def flat_one(u):
        return u[0]

    def computed(f, i):
        return f[i]

    @stencil
    def given(u):
        return u[0] + computed(u, 1)

    assert "the grid has 2 axes, and 1 offsets are given" in refused(flat_one, dims=2)
    message = refused(given)
    assert "a stencil's offsets are whole numbers written out" in message
    assert "is captured, or an argument behind the grid's fields" in message
    assert "the grid has 2 axes, and 1 offsets are given" in refused(
        weighted, (ElementField("u", "f4"), ElementField("w", "f4")), (0,), dims=2)


def test_offsets_from_around_are_read_again_when_they_change():
    def of(reach, places):
        def wide(u):
            return sum(u[i, 0] for i in range(-reach, reach + 1)) + sum(u[at] for at in places) * reach

        return trace(stencil(wide)).definition.halo

    assert of(1, ((0, 1),)) == ((1, 1), (0, 1))
    assert of(2, ((0, 1),)) == ((2, 2), (0, 1))
    assert of(2, ((0, -3),)) == ((2, 2), (3, 0))
    assert of(1, ((0, 1),)) == ((1, 1), (0, 1))


def test_loops_over_offsets_that_are_not_known():
    @stencil
    def computed(u, n):
        total = 0.0
        for i in range(n):
            total += u[i, 0]
        return total

    @stencil
    def left(u):
        total = 0.0
        for i in range(3):
            if u[i, 0] > 0:
                break
            total += u[i, 0]
        return total

    for function, args in ((computed, (2,)), (left, ())):
        with pytest.raises(TranslationError, match="a stencil's offsets are whole numbers written out"):
            trace(function, args)


def test_a_field_is_read_at_offsets_only():
    @stencil
    def bare(u):
        return u[1] + u

    @stencil
    def called(u):
        return u[1] + u(0)

    assert re.search(r"the field u itself \(a stencil reads cells of it, as in u\[0\]\)", refused(bare))
    assert "cannot be called" in refused(called)


def test_parameters_and_fields():
    @stencil
    def takes(u, k):
        return u[0] * k

    named = (ElementField("p", "float32"), ElementField("q", "float32"))
    assert "no parameter of takes is named after a field; the grid's fields are p, q" in refused(takes, named, (1.0,))
    assert "no value is given for the parameter k of takes" in refused(takes)
    rows = (ElementField("u", "float32", (3,)),)
    assert "a grid's cell is one number for each field" in refused(takes, rows, (1.0,))


def test_results_that_are_no_cells():
    @stencil
    def nested(u):
        return {"u": (u[0], u[1])}

    @stencil
    def nothing(u):
        x = u[0]
        if x > 0:
            return

    def row(u):
        return np.zeros(3) + u

    assert "a field's new value is a number" in refused(nested)
    assert "returns nothing" in refused(nothing)
    assert "a cell's new value is a number, a tuple of numbers or a dict of fields" in refused(row)


def test_places_are_known_on_grids_only():
    def placed(x):
        return x + coordinate(0)

    @stencil
    def beyond(u):
        return u[0] + coordinate(1)

    with pytest.raises(TranslationError, match="coordinate is known only on a Grid"):
        specialise(trace(placed), ElementSpec(U))
    assert "the grid has 1 axes, and no axis 1" in refused(beyond)
    with pytest.raises(RuntimeError, match=r"coordinate\(0\) has a value only"):
        coordinate(0)
    with pytest.raises(RuntimeError, match=r"extent\(1\) has a value only"):
        extent(1)
