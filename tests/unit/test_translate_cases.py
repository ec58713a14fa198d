"""Every case of the language: the kernel on the host device against the function with NumPy scalars."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden import cases_control, cases_numbers, cases_rows  # noqa: F401 - they fill CASES
from tests.golden.case import CASES, Case
from tests.golden.harness import difference, plain, translated


def _promoted(expected: object, found: object) -> object:
    """What was expected, in the types of what was found."""
    if isinstance(expected, tuple):
        return tuple(map(_promoted, expected, found))
    value = np.asarray(expected).astype(np.asarray(found).dtype)
    return value if isinstance(found, np.ndarray) else (value[()] if isinstance(found, np.generic) else value.item())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.construct) for case in CASES])
def test_the_kernel_does_what_the_function_does(case: Case):
    expected = plain(case.fn, case.data, *case.args)
    found = translated(case.fn, case.data, *case.args)
    assert len(expected) == len(found)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        wanted = _promoted(one, other) if case.promoted else one
        assert not difference(wanted, other, case.tolerance), f"element {number}"


def test_names_are_unique():
    names = [case.construct for case in CASES]
    assert len(names) == len(set(names))
