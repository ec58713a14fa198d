"""Every case of the language: the kernel on the host device against the function with NumPy scalars.

The kernels of many cases are compiled together, which takes a tenth of the time.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

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
from tests.golden.harness import build, difference, plain, promoted, record_of
from tests.property.differential.units import UnitLaunch, runner
from vispark.translate import TranslationError, trace
from vispark.translate.codegen.scalar.interface import TracedCall
from vispark.translate.fusion import fuse

pytestmark = pytest.mark.slow

#: Cases in a compilation.
UNIT = 60


@functools.cache
def _unit(number: int) -> dict[GoldenCase, list[Any] | TranslationError]:
    """Return the results of the kernels of a unit's cases for each element."""
    results: dict[GoldenCase, list[Any] | TranslationError] = {}
    launches: dict[GoldenCase, UnitLaunch] = {}
    for case in CASES[number * UNIT:(number + 1) * UNIT]:
        fields = case.data if isinstance(case.data, dict) else {"": case.data}
        try:
            call = TracedCall(trace(case.fn, case.args), case.args)
            launches[case] = UnitLaunch(fuse((call,), record_of(case.data)), call, fields)
        except TranslationError as error:
            results[case] = error
    written = runner("host").run(list(launches.values()), kept=True)
    for (case, launch), outputs in zip(launches.items(), written, strict=True):
        results[case] = [build(launch.kernel, launch.kernel.structure, [output[i] for output in outputs])
                         for i in range(launch.count)]
    return results


@pytest.mark.parametrize("case", [pytest.param(case, id=case.construct) for case in CASES])
def test_the_kernel_does_what_the_function_does(case: GoldenCase):
    expected = plain(case.fn, case.data, *case.args)
    results = _unit(CASES.index(case) // UNIT)[case]
    if isinstance(results, TranslationError):
        raise results
    assert len(expected) == len(results)
    for number, (one, other) in enumerate(zip(expected, results, strict=True)):
        wanted = promoted(one, other) if case.promoted else one
        assert not difference(wanted, other, case.tolerance), f"element {number}"


def test_names_are_unique():
    names = [case.construct for case in CASES]
    assert len(names) == len(set(names))
