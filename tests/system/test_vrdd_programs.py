"""Kernels in the style of benchmark suites, whole: their includes, macros, structures by value and nested ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from gpu_worker.protocol.errors import LaunchError
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context
from vispark import IN, OUT, Kernels

PARTICLES = Kernels.from_file(Path(__file__).parents[1] / "device" / "kernels" / "particles.cu")
PER_BOX, ALPHA = 8, 0.5
NEIGHBOUR = np.dtype([("x", "i4"), ("y", "i4"), ("z", "i4"), ("number", "i4"), ("offset", "i8")], align=True)
BOX = np.dtype([("x", "i4"), ("y", "i4"), ("z", "i4"), ("number", "i4"), ("offset", "i8"), ("nn", "i4"),
                ("nei", NEIGHBOUR, (26,))], align=True)
DIM = np.dtype([("boxes1d", "i4"), ("boxes", "i8"), ("elements", "i8"), ("mem", "u8")], align=True)
PAR = np.dtype([("alpha", "f8")])


def boxes_of(side: int) -> np.ndarray:
    """Return the boxes of a cube, with those that touch each."""
    places = list(np.ndindex(side, side, side))
    boxes = np.zeros(len(places), BOX)
    for number, place in enumerate(places):
        near = [other for other, at in enumerate(places) if other != number
                and max(abs(a - b) for a, b in zip(at, place, strict=True)) <= 1]
        boxes[number] = (*place, number, number * PER_BOX, len(near), np.zeros(26, NEIGHBOUR))
        boxes["nei"]["offset"][number, :len(near)] = np.array(near) * PER_BOX
    return boxes


def forces_of(boxes: np.ndarray, rv: np.ndarray, qv: np.ndarray) -> np.ndarray:
    expected = np.zeros_like(rv)
    for box in boxes:
        home = rv[box["offset"]:box["offset"] + PER_BOX]
        for first in [box["offset"], *box["nei"]["offset"][:box["nn"]]]:
            others, charges = rv[first:first + PER_BOX], qv[first:first + PER_BOX]
            dots = home[:, 1:] @ others[:, 1:].T
            w = charges * np.exp(-2 * ALPHA ** 2 * (home[:, :1] + others[:, 0] - dots))
            apart = home[:, None, 1:] - others[None, :, 1:]
            expected[box["offset"]:box["offset"] + PER_BOX, 0] += w.sum(1)
            expected[box["offset"]:box["offset"] + PER_BOX, 1:] += (w[:, :, None] * apart).sum(1)
    return expected


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


def test_particles_in_boxes(sc: SparkContext):
    boxes, random = boxes_of(3), np.random.default_rng(5)
    count = len(boxes) * PER_BOX
    clouds = [{"rv": random.random((count, 4)), "qv": random.random(count)} for _ in range(2)]
    par, dim = np.array((ALPHA,), PAR)[()], np.array((3, len(boxes), PER_BOX, boxes.nbytes), DIM)[()]
    moved = sc.parallelize(clouds, 2).cache("GPU").exec(
        PARTICLES.forces, par, dim, boxes, IN["rv"], IN["qv"], OUT["fv"],
        out={"fv": ((count, 4), "f8")}, grid=len(boxes), block=PER_BOX)
    for record, cloud in zip(moved.collect(), clouds, strict=True):
        np.testing.assert_allclose(record["fv"], forces_of(boxes, cloud["rv"], cloud["qv"]), rtol=1e-12)


def test_a_structure_that_is_not_laid_out_as_the_kernels_is_refused(sc: SparkContext):
    packed = np.array((3, 27, PER_BOX, 0), "i4,i8,i8,u8")[()]
    with pytest.raises(LaunchError, match=r"dim_str dim.*np.dtype\(..., align=True\)"):
        sc.parallelize([np.zeros(4)], 1).cache("GPU").exec(
            PARTICLES.forces, np.array((ALPHA,), PAR)[()], packed, boxes_of(1), IN, IN, OUT, grid=1, block=8).collect()


NUMBERS = Kernels("""
#include <stdint.h>
__global__ void each(const double* x, double* y, long a, size_t b, unsigned long long c, int64_t d, double e, float f,
                    unsigned char g, bool h)
{ y[threadIdx.x] = x[threadIdx.x] + (a + (double)b + (double)c + d + e + f + g + h); }
""")


def test_python_numbers_for_every_type_of_parameter(sc: SparkContext):
    numbers = sc.parallelize([np.arange(3.0)], 1).cache("GPU")
    sums = numbers.exec(NUMBERS.each, IN, OUT, -1, 2 ** 40, 2 ** 50, -(2 ** 41), 0.125, 0.5, 200, True, grid=1, block=3)
    np.testing.assert_array_equal(sums.collect()[0], np.arange(3.0) + (-1 + 2.0 ** 40 + 2.0 ** 50
                                                                     - 2.0 ** 41 + 201.625))


@pytest.mark.parametrize(("position", "value"), [(0, 2 ** 63), (1, -1), (6, 256), (0, 0.5)])
def test_python_numbers_that_a_parameter_does_not_hold(sc: SparkContext, position: int, value: float):
    arguments = [-1, 2, 3, 4, 0.125, 0.5, 200, True]
    arguments[position] = value
    with pytest.raises(LaunchError, match=r"does not hold|Python float"):
        sc.parallelize([np.arange(3.0)], 1).cache("GPU").exec(NUMBERS.each, IN, OUT, *arguments, grid=1, block=3)
