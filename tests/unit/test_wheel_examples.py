"""Verdicts on the examples of PySpark's wheel: ``python -m tests.wheel_examples`` runs them."""

from __future__ import annotations

import pytest

from tests.wheel_examples import EXAMPLES, EXPLAINED, PrintedOutput, difference, judged, replaced

TABLE = "+---+\n|  a|\n+---+\n|{}|\n+---+\n"


def test_widths_names_of_objects_and_the_last_places_do_not_count():
    ours = TABLE.format(" -0.12345678901234...") + "uid KMeans_0123456789ab [1.00000001, 0.5 ,\n 2e-17]"
    plain = TABLE.format("-0.123456789012345678") + "uid KMeans_ba9876543210 [1.0, 0.5, 0.0]"
    text, count, apart = difference(ours, plain, 1e-6)
    assert (text, count) == ("", 4)
    assert 1e-9 < apart < 1e-7


@pytest.mark.parametrize(("ours", "plain", "text"), [
    ("1.00001", "1.0", "1 of 1 numbers differ, at most by 1.0e-05"), ("-1", "1", "1 of 1 numbers differ"),
    ("1", "2", "1 of 1 numbers differ"), ("1 2", "1", "2 numbers, plain 1"), ("12", "1 2", "1 numbers, plain 2"),
    ("nan", "1", "0 numbers, plain 1"), ("a 1", "b 1", "other words")])
def test_other_numbers_and_words_count(ours: str, plain: str, text: str):
    assert difference(ours, plain, 1e-6)[0].startswith(text)


def test_outcomes():
    one, other = PrintedOutput(0, "1", ""), PrintedOutput(0, "2", "")
    log = "KeyError: 2\nTraceback (most recent call last):\n  File\n    f()\n{}\njava.lang.RuntimeException: behind\n"
    failed, other_failed = (PrintedOutput(1, "", log.format(error)) for error in ("TypeError: no", "ValueError"))
    assert judged("kmeans_example", one, one, 1e-6) == ("equal", "1 numbers, 0.0e+00 apart")
    assert judged("kmeans_example", one, other, 1e-6)[0] == "differs"
    assert judged(next(iter(EXPLAINED)), one, other, 1e-6)[0] == "explained"
    assert judged("kmeans_example", failed, failed, 1e-6) == ("refused", "TypeError: no")
    assert judged("kmeans_example", failed, other_failed, 1e-6)[0] == "differs"
    assert judged("kmeans_example", failed, one, 1e-6) == (
        "differs", "exit status 1, plain 0: TypeError: no")
    assert judged("kmeans_example", PrintedOutput(None, "", ""), one, 1e-6) == ("differs", "vispark's did not end")
    assert PrintedOutput(0, "", "x.py:1: FallbackWarning: KMeans: no rows\n").left == ["KMeans: no rows"]


def test_programs_are_those_of_the_wheel():
    programs = {path.stem: replaced(path.read_text()) for path in EXAMPLES.glob("*.py")}
    assert programs["kmeans_example"] == {"KMeans", "ClusteringEvaluator"}
    assert not programs["binarizer_example"]
    assert all(programs[name] for name in EXPLAINED)
