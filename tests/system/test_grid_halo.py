"""Halos of grids in the workers: fields tell each cell by its coordinates, and the exchange must restore them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from tests.grid_reference import SideRules, numbered, offsets, padded
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import IN, OUT, Grid, Kernels, LaunchError, PlanError

#: Copies from each block with its halo the cells at an offset: what the exchange put there becomes the block.
SHIFT = Kernels("""
template <typename T> __global__ void shift(const T* in, T* out, int nz, int ny, int nx, int gz, int gy, int gx,
                                            int dz, int dy, int dx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    int ix = nx - 2 * gx, iy = ny - 2 * gy;
    if (x < ix)
        out[((long long)z * iy + y) * ix + x] = in[((long long)(z + gz + dz) * ny + y + gy + dy) * nx + x + gx + dx];
}
""")
TYPES = {"f4": "float", "f8": "double", "i4": "int", "i8": "long long", "u1": "unsigned char"}


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def position(*at):
    return sum((each + 5) * 100**axis for axis, each in enumerate(at)) % 251


P, M = "periodic", "mirrored"
CASES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], SideRules]] = [
    ((17,), (4,), (1,), [(P, P)]),
    ((17,), (5,), (3,), [(M, 7)]),
    ((9,), (1,), (2,), [(position, M)]),
    ((10, 11), (3, 2), (1, 1), [(P, P), (0, 9)]),
    ((12, 13), (2, 3), (2, 3), [(M, M), (P, P)]),
    ((9, 8), (3, 2), (3, 0), [(position, 5), (M, M)]),
    ((6, 40), (1, 1), (1, 2), [(P, P), (P, P)]),
    ((6, 7, 8), (2, 3, 2), (1, 1, 1), [(P, P), (M, 4), (position, position)]),
    ((9, 7, 37), (2, 1, 4), (3, 2, 1), [(3, M), (P, P), (P, P)]),
    ((5, 6, 9), (1, 2, 3), (1, 3, 3), [(M, M), (M, position), (M, 2)]),
]


def shifted(blocks, field: str, dtype: str, halo: tuple[int, ...], by: tuple[int, ...]):
    """Return the grid whose cells are those at an offset, by a kernel on blocks with halos."""
    lead = 3 - len(halo)
    source, result = (IN[field], OUT[field]) if field else (IN, OUT)

    def inner(block):
        shape = block[field].shape if field else block.shape
        return tuple(extent - 2 * width for extent, width in zip(shape, halo, strict=True))

    def out(block):
        return {field: (inner(block), dtype)} if field else (inner(block), dtype)

    def grid(block):
        nz, ny, nx = (1,) * lead + inner(block)
        return -(-nx // 32), ny, nz

    shape = (source.shape[axis - lead] if axis >= lead else 1 for axis in range(3))
    return blocks.exec(SHIFT[f"shift<{TYPES[dtype]}>"], source, result, *shape, *(0,) * lead, *halo, *(0,) * lead, *by,
                       out=out, grid=grid, block=32)


@pytest.mark.parametrize(("shape", "splits", "halo", "rules"), CASES)
def test_an_exchange_restores_the_coordinates(sc: SparkContext, shape, splits, halo, rules):
    array = numbered(shape, "i8")
    blocks = Grid(shape, splits, halo, tuple(rules)).scatter(sc, array, min(3, int(np.prod(splits)))).cache("GPU")
    blocks.halo_extract().halo_shuffle()
    blocks = blocks.halo_append()
    whole = padded(array, halo, rules)
    for by in offsets(halo):
        cells = tuple(slice(width + step, width + step + extent)
                      for width, step, extent in zip(halo, by, shape, strict=True))
        np.testing.assert_array_equal(Grid.gather(shifted(blocks, "", "i8", halo, by)), whole[cells], str(by))


def test_fields_of_all_widths_have_boundaries_of_their_own(sc: SparkContext):
    shape, halo, dtypes = (7, 9, 10), (1, 2, 1), {"a": "f4", "b": "u1", "c": "f8"}
    rules = {"a": [(P, P), (M, M), (0.5, -2)], "b": [(3, 4), (P, P), (M, 200)], "c": [(0.0, 0.0)] * 3}
    grid = Grid(shape, (2, 2, 3), halo, {name: tuple(rules[name]) for name in "ab"}, dtypes)
    fields = {name: numbered(shape, dtype, start) for start, (name, dtype) in enumerate(dtypes.items())}
    blocks = grid.scatter(sc, fields).cache("GPU").halo_extract().halo_shuffle().halo_append()
    for name, dtype in dtypes.items():
        whole = padded(fields[name], halo, rules[name])
        for by in ((-1, 2, 1), (0, -2, -1), (1, 0, 0)):
            gathered = Grid.gather(shifted(blocks, name, dtype, halo, by))
            cells = tuple(slice(width + step, width + step + extent)
                          for width, step, extent in zip(halo, by, shape, strict=True))
            np.testing.assert_array_equal(gathered[name], whole[cells])
            others = [each for each in dtypes if each != name]
            assert all(np.array_equal(gathered[each], fields[each]) for each in others)


def test_a_kernel_may_write_the_padded_block_or_work_in_place(sc: SparkContext):
    kernels = Kernels("""
    extern "C" __global__ void add(const float* in, float* out, int n)
    { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = in[i] + 1; }
    extern "C" __global__ void twice(float* x, int n)
    { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }""")
    array = numbered((10, 7), "f4")
    blocks = Grid((10, 7), (3, 2), 1).scatter(sc, array).cache("GPU")
    for kernel, arguments, expected in ((kernels.add, (IN, OUT, IN.size), array + 1),
                                        (kernels.twice, (IN, IN.size), array * 2)):
        with_halos = blocks.halo_extract().halo_shuffle().halo_append()
        once = with_halos.exec(kernel, *arguments, grid=-(-IN.size // 64), block=64)
        np.testing.assert_array_equal(Grid.gather(once), expected)
        again = once.cache().halo_extract().halo_shuffle().halo_append()
        expected = expected + 1 if kernel.name == "add" else expected * 2
        np.testing.assert_array_equal(Grid.gather(again.exec(kernel, *arguments, grid=-(-IN.size // 64), block=64)),
                                      expected)
    np.testing.assert_array_equal(Grid.gather(blocks), array)
    with pytest.raises(LaunchError, match=r"of a grid's block it is \(6, 6\) with the halo, or \(4, 4\) without"):
        Grid.gather(with_halos.exec(kernels.add, IN, OUT, 4, out=((4,), "f4"), grid=1, block=4))


def test_a_kernel_without_fresh_halos_is_refused(sc: SparkContext):
    blocks = Grid((10, 7), (3, 2), 1).scatter(sc, 0.0).cache("GPU")
    with pytest.raises(PlanError, match="these are stale"):
        Grid.gather(blocks.exec(SHIFT["shift<double>"], IN, OUT, *range(9), grid=1, block=1))
    with pytest.raises(PlanError, match=r"halo_append\(\) needs the neighbours' cells of this version"):
        blocks.halo_append()
    plain = sc.parallelize([("k", np.zeros((3, 3)))]).cache("GPU")
    with pytest.raises(PlanError, match="needs the blocks of a Grid"):
        plain.halo_extract().halo_shuffle().halo_append().collect()
    assert plain.count() == 1
    for record in (plain.halo_extract, lambda: plain.iterate(lambda u: u, steps=2)):
        with pytest.raises(PlanError, match=r"the records are pairs with \w+: start from Grid\(shape, splits\)"):
            record()


def test_a_file_at_fault_is_said_by_the_action(sc: SparkContext, tmp_path: Path):
    np.save(tmp_path / "u.npy", np.zeros((4, 6)))
    blocks = Grid((4, 6), (2, 2)).scatter(sc, tmp_path / "u.npy").cache("GPU")
    np.save(tmp_path / "u.npy", np.zeros((4, 7)))
    with pytest.raises(PlanError, match=r"u\.npy has changed since it was first looked at"):
        Grid.gather(blocks)


def test_what_is_no_whole_grid_has_no_halos(sc: SparkContext):
    blocks = Grid((10, 7), (3, 2), 1).scatter(sc, 0.0).filter(lambda pair: pair[0].position != (1, 1)).cache("GPU")
    assert blocks.count() == 5
    with pytest.raises(PlanError, match=r"block \(1, 1\) of the grid is missing"):
        Grid.gather(blocks.halo_extract().halo_shuffle().halo_append().exec(
            SHIFT["shift<double>"], IN, OUT, *range(9), grid=1, block=1))
