"""Results in files: what comes back, what a comparison of them finds, and how much memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vispark.migrate.capture import packed_values, stored_results
from vispark.migrate.capture.packed_values import whole
from vispark.migrate.capture.stored_results import StoredResult, opened_results, read_results
from vispark.migrate.record.wider_floats import wider
from vispark.migrate.validate import record_order
from vispark.migrate.validate.compare import DIFFERS, EQUAL, Tolerance, compare
from vispark.migrate.validate.nearer_result import CPU, EQUALLY, GPU, nearer, value_at
from vispark.migrate.validate.record_order import in_order
from vispark.migrate.validate.validation import StatementResults, validated, with_nearer
from vispark.migrate.validate.verdicts import ValuePlace


def stored(path: Path, *results: Any) -> list[StoredResult]:
    """Return results as a file has them."""
    with opened_results(path) as file:
        for result in results:
            file.write("result", [0, 3, "", "w"], result)
    return [each.result for each in read_results(path)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocks, runs and arrays that are large be of few values."""
    monkeypatch.setattr(stored_results, "BLOCK_BYTES", 100)
    monkeypatch.setattr(stored_results, "MANY", 4)
    monkeypatch.setattr(record_order, "RUN", 7)
    monkeypatch.setattr(record_order, "RUN_BYTES", 100)
    for name, value in (("LARGE", 64), ("LONG", 20), ("BLOCK", 5)):
        monkeypatch.setattr(packed_values, name, value)


ROWS = [(key, np.arange(12.0) * key) for key in range(40)]


@pytest.mark.parametrize("result", [
    3.5, None, [1.0, "a"], ROWS, dict(ROWS), np.arange(99.0).reshape(9, 11).T, [],
    (np.arange(30), {"a": np.ones(50, "f4")}), [np.arange(30, dtype="c16")]])
@pytest.mark.usefixtures("small_blocks")
def test_results_come_back(tmp_path: Path, result: Any):
    again, = stored(tmp_path / "a", result)
    assert compare(result, again).verdict == EQUAL and compare(again, again).verdict == EQUAL
    back = again.value()
    back = whole(back) if again.form != "list" else [whole(each) for each in back]
    assert repr(np.asarray(back, dtype=object).shape) == repr(np.asarray(result, dtype=object).shape)


def test_a_result_that_is_cut_is_left_out(tmp_path: Path):
    path = tmp_path / "a"
    stored(path, 1.0, np.zeros(1 << 16))
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) - (1 << 18), 30):
        path.write_bytes(data[:size])
        assert len(list(read_results(path))) == (1 if size > 100 else 0)


@pytest.mark.usefixtures("small_blocks")
def test_records_are_sorted_on_disk_as_in_memory(tmp_path: Path):
    records = [(int(key), np.full(3, key)) for key in np.random.default_rng(0).permutation(200)]
    again, = stored(tmp_path / "a", records)
    assert again.size > record_order.RUN_BYTES
    assert [number for _, number, _ in in_order(again, lambda record: record[0])] == [
        number for _, number, _ in in_order(records, lambda record: record[0])]


@pytest.mark.parametrize(("change", "place"), [
    (lambda rows: [*rows[:9], (9, rows[9][1] * (1 + 1e-6)), *rows[10:]], "record 9, key 9, [1][11]"),
    (lambda rows: [*rows[:9], *rows[10:]], "record 9, key 9"),
    (lambda rows: [*rows, (40, rows[0][1])], "record 40, key 40"),
    (lambda rows: [*rows[:9], (77, rows[9][1]), *rows[10:]], "record 9, key 9")])
@pytest.mark.parametrize("order", ["as it was", "another"])
@pytest.mark.usefixtures("small_blocks")
def test_the_first_difference_is_found_in_any_order(tmp_path: Path, change: Any, place: str, order: str):
    changed = change(ROWS)
    if order == "another" and len(changed) <= len(ROWS):
        changed = changed[::-1]
    one, two = *stored(tmp_path / "a", ROWS), *stored(tmp_path / "b", changed)
    comparison = compare(one, two)
    assert (comparison.verdict, str(comparison.place)) == (DIFFERS, place), comparison
    assert compare(ROWS, changed).place == comparison.place


@pytest.mark.usefixtures("small_blocks")
def test_the_worst_value_of_a_large_array_is_found_in_its_block(tmp_path: Path):
    array = np.ones((7, 11))
    other = array.copy()
    other[5, 3] = np.nan
    comparison = compare(*stored(tmp_path / "a", array, other))
    assert (comparison.verdict, comparison.place.path, sum(comparison.histogram)) == (DIFFERS, (5, 3), 77)
    integers = np.arange(77).reshape(7, 11)
    changed = integers.copy()
    changed[6, 10] = -1
    comparison = compare(*stored(tmp_path / "b", integers, changed))
    assert (comparison.verdict, comparison.place.path) == (DIFFERS, (6, 10))
    assert (comparison.reference, comparison.other) == (76, -1)


# -- Memory ----------------------------------------------------------------------------------------------------------

#: Bytes of the larger results below, and those that writing or comparing them may take beyond what was there.
MUCH, BOUND = 200 << 20, 60 << 20

MEASURED = """
import json, resource, sys
import numpy as np
from pathlib import Path
from vispark.migrate.capture.stored_results import opened_results
from vispark.migrate.commands.validate_command import statement_results
from vispark.migrate.validate.validation import validated
from vispark.migrate.validate.verdicts import Tolerance

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

def write(path, results):
    with opened_results(Path(path)) as file:
        for each in results:
            file.write("result", [0, 3, "", "w"], each)

def passes(shift):
    for number in range(MUCH >> 20):
        yield (np.full(1 << 17, float(number)) + shift)

def rows(shift):
    made = [np.full(1 << 12, float(number)) + shift for number in range(MUCH >> 15)]
    yield made

def pairs(shift):
    order = range(MUCH >> 15)
    yield [(key, np.full(1 << 12, float(key)) + shift) for key in (order if not shift else reversed(order))]

def array(shift):
    yield np.arange(float(MUCH >> 3)) + shift

made = {"passes": passes, "rows": rows, "pairs": pairs, "array": array}[sys.argv[2]]
if sys.argv[1] == "write":
    value = list(made(float(sys.argv[4]))) if sys.argv[2] != "passes" else None
    before = peak()
    write(sys.argv[3], value if value is not None else made(float(sys.argv[4])))
    print(peak() - before)
else:
    before = peak()
    one, two = (statement_results(Path(each)) for each in sys.argv[3:5])
    found = validated(one, one, two, Tolerance())
    statement, = found.statements
    print(json.dumps([peak() - before, found.verdict, statement.first, str(statement.passes[0].place),
                      sum(statement.histogram)]))
"""


def measured(*words: object) -> Any:
    ended = subprocess.run([sys.executable, "-c", f"MUCH = {MUCH}\n{MEASURED}", *map(str, words)], capture_output=True,
                           text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["passes", "rows", "pairs", "array"])
def test_results_of_any_size_take_little_memory(tmp_path: Path, kind: str):
    """Write and compare results that are many times what both may take, by the peak of each process."""
    paths = [tmp_path / "one", tmp_path / "two"]
    for path, shift in zip(paths, (0.0, 1e-3), strict=True):
        assert measured("write", kind, path, shift) < BOUND
        assert path.stat().st_size > MUCH > 3 * BOUND
    taken, verdict, first, place, floats = measured("compare", kind, *paths)
    assert taken < BOUND, f"{taken >> 20} MiB"
    assert (verdict, first, floats) == (DIFFERS, 1, MUCH >> 3) and place.startswith("[" if kind in (
        "passes", "array") else "record 0"), place


def test_of_many_passes_the_document_has_the_first_ones_and_the_one_that_differs():
    values_ = [tuple(float(number == 1500) * sign for number in range(2000)) for sign in (1, -1)]
    statement, = validated([StatementResults(("", "w"), 3, values_[0])], [], [StatementResults(
        ("", "w"), 3, values_[1])], Tolerance()).statements
    document = statement.as_json()
    assert len(document["passes"]) == 1001 and document["passes"][-1]["pass"] == 1501
    assert document["ulps"]["0"] == 1999


# -- Nearer to float64 -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("cpu", "gpu", "wide", "expected"), [
    (np.float32(0.5), np.float32(0.75), 0.7, GPU), (0.5, 0.75, 0.5, CPU), (0.5, 0.75, 0.625, EQUALLY),
    ([(1, 2.0), (2, 5.0)], [(1, 2.0), (2, 4.0)], [(2, 4.1), (1, 2.0)], GPU),
    ([1, 2], [1, 3], [1, 3], GPU), ([1.0, 2.0], [1.0], [1.0, 2.0], CPU), (np.nan, 1.0, 1.0, GPU),
    ({"a": np.ones(3)}, {"a": np.array([1, 1, 2.0])}, {"a": np.array([1, 1, 1.1])}, CPU),
    (np.array([1 + 2j]), np.array([1 + 3j]), np.array([1 + 2.9j]), GPU),
    ([(1, 2.0), (2, 5.0)], [(1, 2.0)], [(1, 2.0), (2, 5.0)], CPU)])
def test_which_of_two_results_is_nearer(cpu: Any, gpu: Any, wide: Any, expected: str):
    comparison = compare(cpu, gpu)
    assert comparison.verdict == DIFFERS and nearer(comparison, cpu, gpu, wide) == expected


def test_it_is_not_known_where_the_run_in_wider_floats_gives_neither():
    assert nearer(compare(["a"], ["b"]), ["a"], ["b"], ["c"]).startswith("not known")
    one, two = (StatementResults(("", "w"), 3, (value,)) for value in (1.0, 2.0))
    validation = with_nearer(validated([one], [], [two], Tolerance()), [], "it failed")
    assert validation.statements[0].passes[0].nearer == "not known: it failed"
    assert "nearer to float64: not known: it failed" in validation.as_text()


@pytest.mark.usefixtures("small_blocks")
def test_a_value_is_found_in_what_lies_in_a_file(tmp_path: Path):
    rows, array, pairs = stored(tmp_path / "a", ROWS, np.arange(77.0).reshape(7, 11), dict(ROWS))
    assert value_at(rows, ValuePlace(3, 7, (1, 2))) == value_at(pairs, ValuePlace(0, 7, (1, 2))) == 14.0
    assert value_at(array, ValuePlace(None, None, (6, 10))) == 76.0
    with pytest.raises(LookupError):
        value_at(rows, ValuePlace(0, 99, (1,)))


def test_floats_become_wider_and_nothing_else_changes():
    record = wider((3, "a", np.float32(0.5), 0.25, [np.zeros(2)], {"x": np.ones(2, "f4")}, np.arange(2)))
    assert [type(each) for each in record[:4]] == [int, str, np.float64, np.longdouble]
    assert record[4][0].dtype == np.longdouble and record[5]["x"].dtype == np.float64 and record[6].dtype.kind == "i"
