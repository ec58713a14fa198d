"""``vispark validate``: which statements are recorded, how two runs are aligned, and the command's exit status."""

from __future__ import annotations

import ast
import builtins
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.statcounter import StatCounter

from vispark.migrate.capture.packed_values import decoded, encoded
from vispark.migrate.cli import main
from vispark.migrate.commands.validate_command import recorded_run, statement_results
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES, SourceError
from vispark.migrate.record.result_recorder import _DriversRecorder, as_records_of
from vispark.migrate.source.derived_statements import record_what_is_made
from vispark.migrate.source.statements import RECORD, recorded_statements
from vispark.migrate.validate.compare import DIFFERS, EQUAL, NOT_KNOWN, WITHIN_NOISE, WITHIN_ROUNDING, Tolerance
from vispark.migrate.validate.digests import digest, summarize
from vispark.migrate.validate.validation import StatementResults, grouped, validated, with_nearer, with_order_not_known

#: A program without Spark whose object has the methods of an RDD.
PROGRAM = """import sys
import numpy as np

class Data:
    def __init__(self, rows): self.rows = rows
    def map(self, f): return Data([f(row) for row in self.rows])
    def collect(self): return list(self.rows)
    def reduce(self, f): return sum(self.rows[1:], self.rows[0])

data = Data([np.arange(4.0) * i for i in range(5)])
w = np.ones(4)
for _ in range(3):
    gradient = data.map(lambda row: row * w).reduce(np.add)
    w = w - 0.001 * gradient
if len(sys.argv) > 1:
    sys.exit("no more")
"""


def _lines(source: str) -> list[tuple[int, str, str]]:
    return [(each.line, each.scope, each.target) for each in recorded_statements(source, "job.py")[1]]


@pytest.mark.parametrize(("source", "lines"), [
    ("a = rdd.collect()\nb = [x for x in rdd.take(3)]\n", [(1, "", "a"), (2, "", "b")]),
    ("def main():\n    return rdd.reduce(f)\n", [(2, "main", "return")]),
    ("w -= rate * rdd.map(g).treeReduce(f)\n", [(1, "", "w")]),
    ("for k, v in rdd.collect():\n    pass\n", [(1, "", "for")]),
    ("while rdd.count() > 3:\n    rdd = rdd.filter(f)\n", [(1, "", "while")]),
    ("print('rows', rdd.count())\n", [(1, "", "value")]),
    ("try:\n    a = rdd.first()\nexcept E:\n    a = rdd.take(1)\n", [(2, "", "a"), (4, "", "a")]),
    ("match k:\n    case 1:\n        a = rdd.sum()\n", [(3, "", "a")]),
    ("a, b = rdd.collect(); c = 3\n", [(1, "", "(a, b)")]),
    ("a = list(rdd.toLocalIterator())\nb = rdd.toLocalIterator()\n", [(1, "", "a")]),
    ("n = sc.accumulator(0.0)\nrdd.foreach(f)\nt = n.value\nu = b.value\n", [(3, "", "t")]),
    ("f = lambda rows: rows.sum()\n", []),
    ("def closest(p):\n    return helper(p)\ndef helper(p):\n    return p.sum()\nx = rdd.map(closest).first()\n",
     [(5, "", "x")]),
    ("def norm(p):\n    return p.sum()\nx = rdd.map(lambda p: norm(p) + 1).first()\n", [(3, "", "x")]),
    ("def norm(p, k):\n    return p.sum()\nf = partial(norm, k=3)\nx = rdd.map(f).first()\n", [(4, "", "x")]),
    ("class A:\n    def f(self, p):\n        return p.sum() + self.g(p)\n    def g(self, p):\n        return p.max()\n"
     "    def h(self, rdd):\n        return rdd.map(self.f).collect()\n", [(7, "h", "return")])])
def test_statements_that_take_results_are_recorded_and_functions_of_tasks_are_not(source, lines):
    assert _lines(source) == lines


def test_a_recorded_program_computes_the_same_and_its_positions_stay(monkeypatch):
    taken = []
    monkeypatch.setattr(builtins, RECORD, lambda number, value: taken.append((number, value)) or value, raising=False)
    tree, _ = recorded_statements(PROGRAM, "job.py")
    names, plain = {}, {}
    exec(compile(PROGRAM.replace("sys.argv", "[1]"), "job.py", "exec"), plain)
    exec(compile(ast.unparse(tree).replace("sys.argv", "[1]"), "job.py", "exec"), names)
    assert np.array_equal(names["w"], plain["w"]) and [number for number, _ in taken] == [0, 0, 0]
    lambdas = [[(node.lineno, node.col_offset) for node in ast.walk(each) if isinstance(node, ast.Lambda)]
               for each in (tree, ast.parse(PROGRAM))]
    assert lambdas[0] == lambdas[1] != []


@pytest.mark.parametrize(("source", "expected"), [
    ("s = rdd.collect()\nfirst = s[0]\nn = first[1]\n", [(2, "first"), (3, "n")]),
    ("s = rdd.collect()\nt = s\nt.sort()\nprint(f'{t[0]:.2f}', 'of', len(t))\n", [(4, "value")]),
    ("s = rdd.collect()\nfor k, v in s:\n    m = v / 2\n    c[k] = m\nprint(c)\n", [(2, "c"), (5, "value")]),
    ("for i in r:\n    t = 0.0\n    for k, v in rdd.collect():\n        t += v\n    w = t / 2\n", [(3, "t"), (5, "w")]),
    ("s = rdd.sortByKey().collect()\nfirst = s[0]\n", []),
    ("s = rdd.reduce(f)\nfirst = s[0]\n", []),
    ("def best():\n    s = rdd.collect()\n    return s\nb = best()[0]\n", [(4, "b")]),
    ("def best(s):\n    return s[0]\nb = best(rdd2.collectAsMap())\nbest(b)\n", [(2, "return"), (4, "value")]),
    ("class A:\n    def f(self):\n        self.s = rdd.collect()\n    def g(self):\n        self.n = self.s[0]\n",
     [(5, "self.n")]),
    ("def f(x):\n    s = x.collect()\n    return s[0]\ny = rdd.map(f)\nz = 3\n", []),
    ("class A:\n    def fit(self, rdd):\n        self.c = rdd.collect()\n        self.d = rdd.map(self.near).sum()\n"
     "    def near(self, p):\n        return min(self.c)\n", [])])
def test_statements_that_make_something_of_records_are_recorded(source, expected):
    tree, statements = recorded_statements(source, "job.py")
    record_what_is_made(tree, statements)
    assert sorted((each.line, each.target) for each in statements if each.sources) == expected
    compile(tree, "job.py", "exec")


def test_what_a_loop_over_records_leaves_is_recorded_behind_it_and_nothing_else_changes(monkeypatch):
    source = PROGRAM.replace("w = w - 0.001 * gradient", """for row in data.collect():
        last = row[0]
        w = w - 0.001 * row
    for row in []:
        never = row
    str(w[0])""").replace("sys.argv", "[1]")
    taken = []
    monkeypatch.setattr(builtins, RECORD, lambda number, value: taken.append((number, value)) or value, raising=False)
    tree, statements = recorded_statements(source, "job.py")
    record_what_is_made(tree, statements)
    names, plain = {}, {}
    exec(compile(source, "job.py", "exec"), plain)
    exec(compile(tree, "job.py", "exec"), names)
    assert np.array_equal(names["w"], plain["w"])
    behind = [value for number, value in taken if statements[number].sources and statements[number].target == "w"]
    assert len(behind) == 3 and np.array_equal(behind[-1], plain["w"])
    assert not [each for each in statements if each.target in ("last", "never")]


def test_a_recorder_gives_values_as_they_are_in_tasks():
    recorder = _DriversRecorder(lambda number, value: [value])
    assert recorder(0, 3) == [3] and cloudpickle.loads(cloudpickle.dumps(recorder))(0, 3) == 3


def test_a_script_that_does_not_parse_is_named():
    with pytest.raises(SourceError, match=r"job\.py does not parse"):
        recorded_statements("def f(:", "job.py")


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2 ** 70, 2 ** 70), st.floats(allow_nan=False), st.text(max_size=4),
              st.binary(max_size=4), st.complex_numbers(allow_nan=False),
              st.integers(-9, 9).map(np.int32), st.floats(width=32, allow_nan=False).map(np.float32),
              st.lists(st.floats(allow_nan=False), max_size=4).map(np.array)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner),
                            st.dictionaries(st.text(max_size=2), inner, max_size=3)), max_leaves=8)


@given(_VALUES)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_values_come_back_with_their_types(value):
    back = decoded(encoded(value))
    assert type(back) is type(value) and digest(back) == digest(value)
    assert getattr(back, "dtype", None) == getattr(value, "dtype", None)


def _results(*values, name="w", line=3) -> StatementResults:
    return StatementResults(("", name), line, values)


def test_the_first_pass_that_differs_is_said_first():
    one = [_results(1.0, 2.0, 3.0), _results(5.0, name="v", line=9)]
    two = [_results(1.0, 2.5, 4.0), _results(6.0, name="v", line=9)]
    validation = validated(one, one, two, Tolerance())
    assert validation.verdict == DIFFERS
    assert validation.as_text().splitlines()[1].startswith("  first: pass 1, line 9 (9), v")
    assert validation.statements[0].first == 2


@pytest.mark.parametrize(("again", "other", "verdict"), [
    (1.0, 1.0, EQUAL), (1.0 + 1e-14, 1.0 + 3e-14, WITHIN_NOISE), (1.0, 1.5, DIFFERS), (1.7, 1.5, NOT_KNOWN),
    (1.7, 1.0, EQUAL)])
def test_a_run_is_judged_by_the_noise_of_the_reference(again, other, verdict):
    validation = validated([_results(1.0)], [_results(again)], [_results(other)], Tolerance())
    assert validation.verdict == verdict


@pytest.mark.parametrize(("again", "verdict"), [([3.0, 1.0, 2.0], EQUAL), ([1.0, 2.0, 3.0], DIFFERS)])
def test_order_counts_where_the_reference_keeps_it(again, verdict):
    validation = validated([_results([1.0, 2.0, 3.0])], [_results(again)], [_results([2.0, 1.0, 3.0])], Tolerance())
    assert validation.verdict == verdict


RANKED = [(3, 0.5), (1, 1.5), (2, 2.5)]


@pytest.mark.parametrize(("is_sorted", "again", "verdict"), [
    (True, None, DIFFERS), (True, RANKED, DIFFERS), (False, RANKED, EQUAL), (False, None, EQUAL),
    (True, [RANKED[1], RANKED[0], RANKED[2]], EQUAL)])
def test_pairs_that_are_sorted_are_not_compared_by_key(is_sorted, again, verdict):
    one = StatementResults(("", "ranked"), 3, (RANKED,), is_sorted=is_sorted)
    other = StatementResults(("", "ranked"), 3, (RANKED[::-1],))
    validation = validated([one], [_results(again, name="ranked")] if again else [], [other], Tolerance())
    assert validation.verdict == verdict
    assert ("its records in another order" in validation.as_text()) == (not is_sorted)


def _made_of(pairs: list, first: object, number: int = 4) -> list[StatementResults]:
    return [StatementResults(("", "pairs"), 3, (pairs,), number=number),
            StatementResults(("", "first"), 5, (first,), number=7, sources=(number,))]


@pytest.mark.parametrize(("again", "other", "verdict", "why"), [
    ([(1, 2.0), (3, 4.0)], [(3, 4.0), (1, 2.0)], DIFFERS, "first: pass 1, line 5 (5), first"),
    ([(3, 4.0), (1, 2.0)], [(3, 4.0), (1, 2.0)], NOT_KNOWN, "as it is made of records in their order"),
    (None, [(3, 4.0), (1, 2.0)], NOT_KNOWN, "a run for the noise says"),
    ([(3, 4.0), (1, 2.0)], [(1, 2.0), (3, 4.0)], EQUAL, "equal"),
    (None, [(1, 2.0), (3, 4.0)], EQUAL, "equal")])
def test_what_is_made_of_records_in_another_order_is_compared(again, other, verdict, why):
    runs = [_made_of(pairs, pairs[0]) if pairs else [] for pairs in ([(1, 2.0), (3, 4.0)], again, other)]
    validation = validated(*runs, Tolerance())
    validation = validation if again else with_order_not_known(validation)
    assert validation.verdict == verdict and why in validation.as_text()
    # With records that differ, too, what is made of them says no more.
    wrong = validated(runs[0], runs[1], _made_of([(1, 2.5), (3, 4.0)], 5.0), Tolerance())
    assert wrong.verdict == DIFFERS and not wrong.made


@pytest.mark.parametrize(("value", "verdict"), [([4.0, 2.0], EQUAL), (6.0 + 1e-15, WITHIN_ROUNDING)])
def test_lists_made_of_records_may_come_in_their_order_and_sums_are_within_rounding(value, verdict):
    one = _made_of([(1, 2.0), (3, 4.0)], [2.0, 4.0] if isinstance(value, list) else 6.0)
    validation = validated(one, [], _made_of([(3, 4.0), (1, 2.0)], value), Tolerance())
    assert validation.verdict == verdict and "what is made of it in line 5 is compared" in validation.as_text()


@pytest.mark.parametrize(("source", "is_sorted"), [
    ("a = rdd.sortBy(f).collect()", True), ("r = rdd.map(f).sortByKey()\na = r.take(3)", True),
    ("a = rdd.takeOrdered(3)", True), ("a = sorted(rdd.collect())", True), ("a = rdd.reduceByKey(f).collect()", False),
    ("r = rdd.sortBy(f).map(g)\na = rdd.collect()", False)])
def test_statements_know_what_is_sorted(source, is_sorted):
    assert recorded_statements(source, "job.py")[1][-1].is_sorted == is_sorted


@pytest.mark.parametrize(("values", "verdict", "scale"), [
    # What PySpark 3.5's K-means has: 2.5e-13 of the last value, 5e-15 of the first one.
    ((5.0, 0.1 * (1 + 2.5e-13)), WITHIN_ROUNDING, 5.0), ((5.0, 0.1 * (1 + 1e-10)), DIFFERS, 5.0),
    ((5.0 * (1 + 2.5e-13), 0.1), DIFFERS, 5.0), ((5.0, 0.0), DIFFERS, 5.0), ((5.0, math.nan), DIFFERS, 5.0)])
def test_a_number_that_falls_is_judged_by_its_largest_value_until_then(values, verdict, scale):
    validation = validated([_results(5.0, 0.1)], [], [_results(*values)], Tolerance())
    assert (validation.verdict, validation.statements[0].scale) == (verdict, scale)
    assert " of its largest value, 5" in validation.as_text()


@pytest.mark.parametrize(("error", "verdict"), [(3e-13, WITHIN_ROUNDING), (1e-9, DIFFERS)])
def test_a_gradient_at_its_optimum_is_judged_by_its_largest_value_until_then(error, verdict):
    gradients = [np.array([50.0, -3.0]), np.array([1e-3, 2e-3]), np.array([2e-13, -1e-13])]
    reference = [(each, np.eye(2) * (1 + i)) for i, each in enumerate(gradients)]
    other = [*reference[:2], (gradients[2] + error, reference[2][1])]
    left = _results(gradients[2], name="g", line=0)
    validation = validated([_results(*reference, name="(g, H)"), left], [],
                           [_results(*other, name="(g, H)"), _results(gradients[2] + error, name="g", line=0)],
                           Tolerance())
    assert validation.verdict == verdict
    assert [each.verdict for each in validation.statements] == [verdict] * 2, "and what is left of it at the end"
    wrong = [*reference[:2], (gradients[2], reference[2][1] * (1 + 1e-10))]
    assert validated([_results(*reference)], [], [_results(*wrong)], Tolerance()).verdict == DIFFERS, "of its own field"


@pytest.mark.parametrize(("own", "error", "verdict"), [
    (4e-10, 8e-10, WITHIN_NOISE), (4e-10, 4e-9, DIFFERS), (1e-16, 8e-10, DIFFERS), (0.3, 0.4, DIFFERS)])
def test_what_differs_is_judged_by_how_far_the_cpu_is_from_wider_floats(own, error, verdict):
    reference = np.array([1e-12, 2e-12])
    validation = validated([_results(reference)], [], [_results(reference * (1 + error))], Tolerance())
    assert validation.verdict == DIFFERS
    judged = with_nearer(validation, [_results(reference.astype(np.longdouble) * (1 + np.longdouble(own)))])
    assert judged.verdict == verdict and (judged.statements[0].first is None) == (verdict == WITHIN_NOISE)


@pytest.mark.parametrize(("change", "first"), [((0, 1e-5), 1), ((1, 1e-5), None), ((2, 1e-5), None)])
def test_noise_is_that_of_a_field_in_the_passes_up_to_one(change, first):
    # The second field gets noisy in the second pass; the first one, as a loss beside a gradient, never does.
    reference = [(4.0, np.array([1.0])), (4.0, np.array([1.0])), (4.0, np.array([1.0]))]
    again = [reference[0], *[(4.0, np.array([1.0 + 1e-5]))] * 2]
    number, error = change
    other = [*reference[:number], (4.0, reference[number][1] * (1 + error)), *reference[number + 1:]]
    validation = validated([_results(*reference)], [_results(*again)], [_results(*other)], Tolerance())
    assert validation.statements[0].first == first
    other = [*reference[:number], (4.0 * (1 + error), reference[number][1]), *reference[number + 1:]]
    validation = validated([_results(*reference)], [_results(*again)], [_results(*other)], Tolerance())
    assert validation.statements[0].first == number + 1


class _Moments:
    def __init__(self, mean: float, parts: object = None):
        self.mean, self.parts = mean, parts


@pytest.mark.parametrize(("other", "parts", "verdict"), [
    (0.5, None, EQUAL), (0.5 * (1 + 1e-15), None, WITHIN_ROUNDING), (0.501, None, DIFFERS), (0.5, object(), NOT_KNOWN)])
def test_objects_are_compared_by_their_attributes_and_others_not_called_equal(other, parts, verdict):
    values = [decoded(encoded(_Moments(each, parts))) for each in (0.5, other)]
    validation = validated([_results(values[0])], [], [_results(values[1])], Tolerance())
    assert validation.verdict == verdict
    assert verdict != NOT_KNOWN or "objects of type _Moments are not looked at" in validation.as_text()
    counters = [decoded(encoded(StatCounter([each, 1.0]))) for each in (0.5, 0.501)]
    assert validated([_results(counters[0])], [], [_results(counters[1])], Tolerance()).verdict == DIFFERS
    beside = [decoded(encoded((_Moments(0.5, parts), each))) for each in (1.0, 1.0 + 1e-15)]
    assert validated([_results(beside[0])], [], [_results(beside[1])], Tolerance()).verdict == (
        NOT_KNOWN if parts else WITHIN_ROUNDING)


def test_an_early_pass_is_not_judged_by_the_rounding_errors_of_later_ones():
    reference, wide = [np.array([1.0]), np.array([1e-12])], [np.longdouble(1.0), np.longdouble(1.0004e-12)]
    other = [reference[0] * (1 + 1e-7), reference[1] * (1 + 1e-4)]
    validation = with_nearer(validated([_results(*reference)], [], [_results(*other)], Tolerance()),
                             [_results(*(np.array([each]) for each in wide))])
    assert validation.statements[0].first == 1


@pytest.mark.parametrize("values", [(0.1, 5.0), ([5.0, 1.0], [0.1, 0.1])])
def test_what_rises_and_what_are_records_is_judged_by_its_own_values(values):
    wrong = [[x * (1 + 2.5e-13) for x in each] if isinstance(each, list) else each * (1 + 2.5e-13) for each in values]
    validation = validated([_results(*values)], [], [_results(*wrong)], Tolerance())
    assert (validation.verdict, validation.statements[0].scale) == (DIFFERS, 0)


def test_what_is_left_at_the_end_comes_behind_the_passes():
    one = [_results(1.0, 2.0, 3.0), _results(3.0, line=0)]
    two = [_results(1.0, 2.0, 4.0), _results(4.0, line=0)]
    lines = validated(one, one, two, Tolerance()).as_text().splitlines()
    assert lines[1].startswith("  first: pass 3, line 3 (3), w: ") and lines[-2].startswith("  at the end: w: ")


def test_other_numbers_of_passes_differ():
    validation = validated([_results(1.0, 2.0)], [], [_results(1.0)], Tolerance())
    assert validation.verdict == DIFFERS and "2 passes and 1" in validation.as_text()


def test_statements_are_aligned_by_name_and_what_one_has_is_said():
    validation = validated([_results(1.0, name="n"), _results(2.0)], [], [_results(2.0, line=8)], Tolerance())
    assert (validation.verdict, [each.name[1] for each in validation.only_reference]) == (EQUAL, ["n"])


def test_nothing_compared_is_not_known():
    assert validated([], [], [], Tolerance()).verdict == NOT_KNOWN


def test_results_above_the_limit_are_compared_by_summaries():
    records = [(i, i / 7) for i in range(50)]
    one, two = _results(summarize(records)), _results(summarize([*records[:-1], (49, 6.0)]))
    assert validated([one], [], [one], Tolerance()).verdict == EQUAL
    assert validated([one], [], [two], Tolerance()).verdict == DIFFERS


def test_results_are_grouped_in_the_order_of_the_source():
    frames = [(("", "b"), 1, 5, 0.1, 1), (("", "a"), 0, 2, 0.2, 2), (("", "b"), 1, 5, 0.3, 3),
              (("", "z"), 0, 0, 1.0, 4)]
    assert [(each.name[1], each.values) for each in grouped(frames)] == [("a", (2,)), ("b", (1, 3)), ("z", (4,))]


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "cpu.py", tmp_path / "gpu.py"
    paths[0].write_text(PROGRAM)
    paths[1].write_text(PROGRAM.replace("0.001 * gradient", "0.001 * gradient * (gradient[1] != 10.0)"))
    return paths


def test_a_difference_is_found_by_the_command(programs):
    ended = CliRunner().invoke(main, ["validate", *map(str, programs), "--no-noise", "--json", "--no-history"])
    assert ended.exit_code == NO, ended.output
    first, *_ = json.loads(ended.output)["statements"]
    assert (first["target"], first["first_pass_that_differs"], first["cpu_passes"]) == ("gradient", 2, 3)


def test_a_program_equals_itself_and_its_results_are_its_users_alone(programs, tmp_path):
    path = recorded_run(programs[0], (), tmp_path, "cpu")
    results = statement_results(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(each.name[1], len(each.values)) for each in results] == [("gradient", 3), ("gradient", 1), ("w", 1)]
    assert validated(results, results, results, Tolerance()).verdict == EQUAL


def test_the_command_compares_what_is_made_of_an_order(tmp_path):
    text = PROGRAM.replace("for _ in range(3):", """for _ in range(2):
    pairs = data.map(lambda row: (int(row[1]), row)).collect()
    top = pairs[0][0]""")
    paths = [tmp_path / "cpu.py", tmp_path / "gpu.py"]
    for path, rows in zip(paths, ("list(self.rows)", "list(self.rows)[::-1]"), strict=True):
        path.write_text(text.replace("list(self.rows)", rows))
    ended = CliRunner().invoke(main, ["validate", *map(str, paths), "--no-history"])
    assert ended.exit_code == NO and "first: pass 1, line 14 (14), top" in ended.output
    ended = CliRunner().invoke(main, ["validate", *map(str, paths), "--no-history", "--no-noise"])
    assert ended.exit_code == UNKNOWN and "line 14 (14): top: 2 passes: not known" in ended.output


def test_a_program_that_fails_is_not_known(programs):
    ended = CliRunner().invoke(main, ["validate", *map(str, programs), "argument"])
    assert ended.exit_code == UNKNOWN and "cpu.py ended with status 1: no more" in ended.output


def test_wrong_use_of_the_command(programs):
    assert CliRunner().invoke(main, ["validate", str(programs[0]), "missing.py"]).exit_code == USAGE
    assert YES == 0


@pytest.mark.parametrize(("held", "expected"), [
    ([{"key": 1, "value": 2.0}], [{"key": 3, "value": 4.0}]), ([(1, 2.0)], [(3, 4.0)]), ([], [(3, 4.0)])])
def test_a_sample_of_pairs_is_one_of_dicts_where_the_port_has_these(held: list, expected: list):
    assert as_records_of(lambda: held, [(3, 4.0)]) == expected


def test_a_sample_of_other_records_starts_no_job():
    def job() -> list:
        raise AssertionError("a job")

    assert as_records_of(job, [1.0, (1, 2)]) == [1.0, (1, 2)] and as_records_of(job, []) == []
