"""Comparison of results: digests, summaries, ulps, verdicts; sown errors are found, correct runs raise no alarm."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vispark.migrate.validate.compare import (
    DIFFERS,
    EQUAL,
    WITHIN_NOISE,
    WITHIN_ROUNDING,
    Tolerance,
    compare,
    compare_summaries,
    ulps,
)
from vispark.migrate.validate.digests import CompensatedSum, Summary, digest, summarize
from vispark.migrate.validate.noise import is_noise

KEYS = 5
_SCALARS = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.booleans(), st.none())
_RECORDS = st.lists(st.tuples(st.integers(0, 50), _SCALARS), max_size=12)


# -- Programs, as RDD actions compute them over partitions -----------------------------------------------------------

def _data(seed: int) -> list[tuple[int, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(i, row * 10.0 ** rng.integers(-2, 3)) for i, row in enumerate(rng.standard_normal((60, 4)))]


def _mapped(parts, dtype="f8"):
    w = np.array([0.3, -1.7, 0.9, 2.1])
    return [(i, x / (1 + np.abs((x * w).astype(dtype).sum()))) for part in parts for i, x in part]


def _totals(parts, dtype="f8"):
    partials = [np.sum([x.astype(dtype) for _, x in part] or [np.zeros(4, dtype)], axis=0) for part in parts]
    total = partials[0]
    for partial in partials[1:]:
        total = total + partial
    return total.astype("f8")


def _by_keys(parts, dtype="f8"):
    totals: dict[int, list] = {}
    for part in parts:
        own: dict[int, list] = {}
        for i, x in part:
            sum_ = own.setdefault(i % KEYS, [np.zeros(4, dtype), 0])
            sum_[0], sum_[1] = sum_[0] + x.astype(dtype), sum_[1] + 1
        for key, (x, count) in own.items():
            sum_ = totals.setdefault(key, [np.zeros(4, dtype), 0])
            sum_[0], sum_[1] = sum_[0] + x, sum_[1] + count
    return [(key, (x.astype("f8"), count)) for key, (x, count) in totals.items()]


PROGRAMS = (_mapped, _totals, _by_keys)


# -- Errors ----------------------------------------------------------------------------------------------------------

def _another_record(data, rng):
    data[rng.randrange(60)] = (data[7][0], data[7][1] * 1.0001)
    return data


def _two_swapped(data, rng):
    i = rng.randrange(59)
    data[i], data[i + 1] = (data[i][0], data[i + 1][1]), (data[i + 1][0], data[i][1])
    return data


def _lost_and_doubled(data, rng):
    low = rng.randrange(0, 40)
    return [*data[:low], *data[low + 10:low + 20], *data[low + 10:]]


def _a_sign(data, rng):
    i, j = rng.randrange(60), rng.randrange(4)
    data[i] = (data[i][0], np.where(np.arange(4) == j, -data[i][1], data[i][1]))
    return data


def _a_key_shifted(data, rng):
    i = rng.randrange(60)
    data[i] = (data[i][0] + 1, data[i][1])
    return data


def _one_nan(data, rng):
    i = rng.randrange(60)
    data[i] = (data[i][0], np.where(np.arange(4) == 2, np.nan, data[i][1]))
    return data


def _last_row_left_out(data, rng):
    return data[:-1]


def _stale(data, rng):
    return [(i, x * (1 + 1e-9)) for i, x in data]


ERRORS = (_another_record, _two_swapped, _lost_and_doubled, _a_sign, _a_key_shifted, _one_nan, _last_row_left_out,
          _stale)
#: Errors that leave some results as they are: a swap within a sum, a key that no total has.
_UNSEEN = {(_totals, _two_swapped), (_totals, _a_key_shifted)}


def _sown():
    """Return every program with every error, and float32 sums, in rounds until there are 200."""
    cases = [(program, error) for program in PROGRAMS for error in ERRORS if (program, error) not in _UNSEEN]
    cases += [(program, None) for program in PROGRAMS]
    return [(*cases[number % len(cases)], number) for number in range(200)]


def deals(items: list, partitions: int, seed: int) -> list[list]:
    """Cut items, in their order, into partitions of random sizes, of which some may be empty."""
    rng = random.Random(seed)
    cuts = sorted(rng.randint(0, len(items)) for _ in range(partitions - 1))
    return [list(items[low:high]) for low, high in zip([0, *cuts], [*cuts, len(items)], strict=True)]


def noise_of(compute, items: list) -> float:
    """Return the largest relative difference of a computation from itself over partitions that are dealt anew."""
    reference = compute(deals(items, 4, 0))
    return max(compare(reference, compute(deals(items, 4 + run % 3, run))).worst for run in range(1, 4))


def _length(result) -> int:
    return len(result)


@pytest.mark.slow
def test_200_sown_errors_are_found_and_row_counts_find_few():
    missed, by_rows = [], 0
    for program, error, seed in _sown():
        rng, data = random.Random(seed), _data(seed)
        reference = program(deals(data, 3, seed))
        noise = noise_of(program, data)
        wrong = deals(data if error is None else error(list(data), rng), 4, seed + 1)
        result = program(wrong, "f4") if error is None else program(wrong)
        comparison = compare(reference, result, Tolerance(noise))
        by_rows += _length(reference) != _length(result)
        summaries = [summarize(each if isinstance(each, list) else [each]) for each in (reference, result)]
        if comparison.verdict != DIFFERS or compare_summaries(*summaries, Tolerance(noise)).verdict != DIFFERS:
            missed.append((program.__name__, error and error.__name__, seed, comparison))
    assert not missed
    assert by_rows < 20     # what a comparison of row counts would have found


@pytest.mark.slow
def test_200_correct_runs_with_other_partitions_raise_no_alarm():
    alarms = []
    for seed in range(200):
        program, data = PROGRAMS[seed % 3], _data(seed)
        reference, again = program(deals(data, 2, seed)), program(deals(data, 5, seed + 1))
        noise = noise_of(program, data)
        summaries = [summarize(each if isinstance(each, list) else [each]) for each in (reference, again)]
        tolerance = Tolerance(noise)
        for comparison in (compare(reference, again, tolerance), compare_summaries(*summaries, tolerance)):
            if comparison.verdict == DIFFERS:
                alarms.append((program.__name__, seed, comparison))
    assert not alarms


# -- Digests and summaries -------------------------------------------------------------------------------------------

@given(_RECORDS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_digests_are_blind_to_order_and_to_nothing_else(records, rng):
    shuffled = rng.sample(records, len(records))
    assert summarize(shuffled).whole == summarize(records).whole
    for number, (key, value) in enumerate(records):
        changed = [*records[:number], (key + 1, value), *records[number + 1:]]
        assert summarize(changed).whole != summarize(records).whole


@pytest.mark.parametrize(("one", "two"), [
    (np.float32(0.5), 0.5), (-0.0, 0.0), (np.int8(3), 3), ((1, 2), [1, 2]), (np.array([1, 2], "i4"), np.array([1, 2])),
    (math.nan, -math.nan), (np.bool_(True), True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (2 ** 80, 2 ** 80)])
def test_equal_values_have_one_digest(one, two):
    assert digest(one) == digest(two)


@pytest.mark.parametrize(("one", "two"), [
    (1, "1"), ((1, (2, 3)), (1, 2, 3)), (np.zeros((2, 3)), np.zeros((3, 2))), (2 ** 80, 2 ** 80 + 1), (None, 0),
    (b"a", "a"), ([1.0, 2.0], [2.0, 1.0]), (0.1, np.float32(0.1))])
def test_other_values_have_others(one, two):
    assert digest(one) != digest(two)


def test_equal_records_do_not_cancel():
    assert summarize([1, 1]).whole != summarize([]).whole != summarize([2, 2]).whole


def test_a_compensated_sum_keeps_what_is_rounded_away():
    total = CompensatedSum()
    for value in (1.0, 1e100, 1.0, -1e100):
        total.add(value)
    assert total.value == 2.0


def test_a_summary_counts_what_is_not_finite():
    summary = summarize([(1, math.nan), (2, math.inf), (3, np.array([-math.inf, 0.0, 4.0]))])
    assert (summary.nans, summary.infinities, summary.negative_infinities, summary.zeros) == (1, 1, 1, 1)
    assert (summary.least, summary.greatest) == (0.0, 4.0)


def test_an_empty_summary_equals_another():
    assert compare_summaries(Summary(), Summary()).verdict == EQUAL


# -- Comparisons -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("one", "two", "distance"), [
    (1.0, 1.0, 0), (1.0, 1.0 + 2 ** -52, 1), (-5e-324, 5e-324, 2), (math.nan, math.nan, 0),
    (math.nan, 1.0, 2 ** 64 - 1), (np.float32(1), np.float32(1 + 2 ** -22), 2), (np.float32(1), 1 + 2 ** -30, 0),
    (math.inf, math.inf, 0)])
def test_ulps(one, two, distance):
    assert int(ulps(one, two)) == distance


@pytest.mark.parametrize(("one", "two", "verdict"), [
    (1.0, 1.0, EQUAL), (1.0, 1.0 + 1e-15, WITHIN_NOISE), (1.0, 1.0 + 1e-13, WITHIN_ROUNDING),
    (1.0, 1.0 + 1e-9, DIFFERS), (3, 4, DIFFERS), ("a", "b", DIFFERS), (1.0, "a", DIFFERS),
    (math.nan, math.nan, EQUAL), (math.nan, 1.0, DIFFERS),
    (math.inf, -math.inf, DIFFERS), (2, 2.0, EQUAL), (np.zeros(3), np.zeros(4), DIFFERS)])
def test_verdicts(one, two, verdict):
    assert compare(one, two, Tolerance(noise=1e-15)).verdict == verdict


def test_a_narrower_dtype_is_rounding_only_where_it_is_allowed():
    exact = np.linspace(0.1, 1, 9)
    assert compare(exact, exact.astype("f4")).verdict == DIFFERS
    assert compare(exact, exact.astype("f4"), Tolerance(allow_narrower=True)).verdict == WITHIN_ROUNDING
    # What a function makes of float32 and a captured float64 is float64.
    mixed = exact.astype("f4") * exact
    assert compare(exact * exact, mixed, Tolerance(allow_narrower=True)).verdict == WITHIN_ROUNDING
    assert compare(exact * exact, mixed).verdict == DIFFERS


def test_the_first_record_that_differs_is_named_with_its_key():
    comparison = compare([(k, np.ones(3)) for k in "abc"], [(k, np.ones(3) * (k < "b")) for k in "cba"])
    assert (str(comparison.place), comparison.reference, comparison.other) == ("record 1, key 'b', [1][0]", 1.0, 0.0)
    assert comparison.as_json()["ulps"]["0"] == 3


def test_a_small_value_beside_large_ones_is_judged_by_the_largest_of_its_field():
    assert compare([1e6, 1e-12], [1e6, 2e-12]).verdict != DIFFERS


@pytest.mark.parametrize(("ordered", "verdict"), [(True, DIFFERS), (False, EQUAL)])
def test_order_counts_where_it_is_said_to(ordered, verdict):
    assert compare([1.0, 2.0, 3.0], [3.0, 1.0, 2.0], ordered=ordered).verdict == verdict


@pytest.mark.parametrize(("other", "place", "why"), [
    ([1.0, 3.0], "record 1", "3 records and 2: differs by 3.3e-01 of the largest value of its field"),
    ([1.0, 2.0], "record 2", "3 records and 2: one ends"),
    ([1.0, 2.0, 3.0, 4.0], "record 3", "3 records and 4: one ends")])
def test_of_lists_of_other_lengths_the_first_record_is_named_in_which_they_part(other, place, why):
    comparison = compare([1.0, 2.0, 3.0], other)
    assert (comparison.verdict, str(comparison.place), comparison.why) == (DIFFERS, place, why)


def test_a_missing_key_is_named():
    assert compare([(1, 2), (2, 3)], [(1, 2), (3, 3)]).why == "a key is missing"


def test_a_program_that_draws_random_numbers_is_not_judged_by_its_noise():
    assert not is_noise(compare(0.25, 0.75)) and is_noise(compare(1.0, 1.0 + 1e-12))
