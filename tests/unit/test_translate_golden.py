"""The generated source, kept as files. ``VISPARK_UPDATE_GOLDEN=1`` writes them anew; read the difference first.

tests/device/test_nvrtc.py compiles every file for GPUs; here the host compiles and runs each the way that a GPU takes.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpu_worker.device
from tests.golden import (  # noqa: F401 - they fill CASES
    cases_calls,
    cases_control,
    cases_idioms,
    cases_lists,
    cases_numbers,
    cases_numpy,
    cases_random,
    cases_rows,
    cases_special,
)
from tests.golden.case import CASES, GoldenCase
from tests.golden.fused import FUSED
from tests.golden.harness import build, difference, launch, plain, promoted, record_of, translated
from vispark.translate import TracedCall, fuse, trace

FOLDER = Path(__file__).parents[1] / "golden"
UPDATE = os.environ.get("VISPARK_UPDATE_GOLDEN") == "1"
GOLDEN = [case for case in CASES if case.golden]


def source_of(case: GoldenCase) -> str:
    """Return a case's source as it is kept."""
    kernel = fuse((TracedCall(trace(case.fn, case.args), case.args),), record_of(case.data))
    return f"// kernels: {kernel.name}\n// {case.construct}\n{kernel.source}"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.golden) for case in GOLDEN])
def test_the_source_is_the_one_that_is_kept(case: GoldenCase):
    file = FOLDER / f"{case.golden}.cu"
    if UPDATE:
        file.write_text(source_of(case))
    assert file.read_text() == source_of(case), f"{file.name} differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("name", FUSED)
def test_the_source_of_chains_and_folds_is_the_one_that_is_kept(name: str):
    file, kernel = FOLDER / f"{name}.cu", FUSED[name].kernel()
    source = f"// kernels: {kernel.name}\n// {FUSED[name].shows}\n{kernel.source}"
    if UPDATE:
        file.write_text(source)
    assert file.read_text() == source, f"{file.name} differs; VISPARK_UPDATE_GOLDEN=1 writes it anew"


def test_every_golden_file_has_its_case():
    assert {file.stem for file in FOLDER.glob("*.cu")} == {case.golden for case in GOLDEN} | set(FUSED)


# Of a power of one half of minus infinity the host compiler makes a square root, unless it is in a vector loop.
@pytest.mark.parametrize("case", [pytest.param(case, id=case.golden) for case in GOLDEN if case.golden != "powers"])
def test_the_way_that_a_gpu_takes_gives_the_same(case: GoldenCase):
    for one, other in zip(plain(case.fn, case.data, *case.args),
                          translated(case.fn, case.data, *case.args, staged=True), strict=True):
        assert not difference(promoted(one, other) if case.promoted else one, other, max(4, case.tolerance))


def _sizes(z):
    return np.abs(z), np.sign(z), np.isclose(0, z), np.hypot(z.real, z.imag), math.hypot(z.real, z.imag)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_size_as_a_gpu_computes_it_is_the_nearest_number(dtype: str):
    most, random = float(np.finfo(dtype).max), np.random.default_rng(1)
    with np.errstate(over="ignore"):
        data = np.array([complex(most, 13), complex(-2, -most), complex(-most, 0), complex(most, most), 3 + 4j, 0,
                         complex(np.inf, 1), complex(np.nan, -np.inf), complex(np.nan, 1), 5e-324j,
                         complex(0.75 * most, most / 2), complex(1e-320, 3e-322), 1e-300 + 1e-300j,
                         -2.5375803526795546e44 - 1.2750785497988j,
                         *(random.standard_normal(99) + 1j * random.standard_normal(99))], dtype)
    call = TracedCall(trace(_sizes))
    kernel = fuse((call,), record_of(data))
    header = Path(gpu_worker.device.__file__).with_name("cuda") / "include" / "vispark" / "target.h"
    hypot = re.search(r"__device__ __forceinline__ double hypotenuse.*(?=^}  // namespace)", header.read_text(),
                      re.MULTILINE | re.DOTALL)
    assert kernel.source.count("vispark::hypotenuse") == 1
    source = kernel.source.replace("vispark::hypotenuse", "gpu::hypotenuse")
    source = source.replace(".h\"\n", f".h\"\nnamespace gpu {{\n{hypot[0]}}}\n", 1)
    outputs, = launch(replace(kernel, source=source), (call,), (data,))
    for i, expected in enumerate(plain(_sizes, data)):
        result = build(kernel, kernel.structure, [outputs[one.name][i] for one in kernel.outputs])
        assert not difference(expected, result, 1)
