"""Captures: values as JSON and arrays, owner only, and verdicts with the types of records."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from vispark.migrate.capture.run_capture import CapturedCall, Opaque, RunCapture, decoded, digest_of, encoded
from vispark.migrate.cli import main
from vispark.migrate.errors import UNKNOWN, CaptureError
from vispark.migrate.record.probed_chains import ProbedCall, chain_of
from vispark.migrate.rules.typed_verdicts import described, typed_verdict

_NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.complex_numbers(
    allow_nan=False)
_KEYS = st.integers() | st.text()
_VALUES = st.recursive(_NUMBERS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple)
                       | st.dictionaries(_KEYS, inner), max_leaves=12)


@pytest.mark.slow
@given(_VALUES)
def test_plain_values_come_back(value: object):
    arrays: dict[str, np.ndarray] = {}
    again = decoded(json.loads(json.dumps(encoded(value, arrays), allow_nan=False)), arrays)
    assert again == value and type(again) is type(value)


@pytest.mark.parametrize("value", [
    np.arange(6, dtype="f4").reshape(2, 3), np.float64("nan"), np.int8(-3), np.bool_(True), np.zeros((0, 2)),
    [np.ones(3), np.zeros(3), np.full(3, 2.0)], [np.ones(2), np.ones(3), np.ones(4)], (1, np.complex64(1j))])
def test_arrays_come_back_with_their_types(value: object):
    arrays: dict[str, np.ndarray] = {}
    again = decoded(json.loads(json.dumps(encoded(value, arrays))), arrays)
    assert type(again) is type(value)
    for result, expected in zip(*[each if isinstance(each, list | tuple) else [each] for each in (again, value)],
                                strict=True):
        np.testing.assert_array_equal(result, expected)
        assert getattr(result, "dtype", None) == getattr(expected, "dtype", None)


def test_what_is_not_data_is_opaque():
    arrays: dict[str, np.ndarray] = {}
    for value in (object(), {1, 2}, np.array([object()]), np.zeros(1 << 21)):
        assert isinstance(decoded(encoded(value, arrays), arrays), Opaque)
    assert math.isnan(decoded(encoded(math.nan, arrays), arrays)) and not arrays


def test_a_capture_is_its_owners_alone_and_comes_back(tmp_path: Path):
    capture = RunCapture("job.py", ["1"], digest_of("x"), arrays={"a0": np.arange(3)})
    folder = tmp_path / "c"
    capture.write(folder)
    capture.write(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    again = RunCapture.read(folder)
    np.testing.assert_array_equal(again.arrays.pop("a0"), capture.arrays.pop("a0"))
    assert again == capture


@pytest.mark.parametrize("content", [b"{}", b"[]", b"null", b"", b"\xff", b'{"version": 99}', b'{"version": 1}',
                                     b'{"version": 1, "calls": [{}]}'])
def test_what_is_no_capture_says_so(tmp_path: Path, content: bytes):
    (tmp_path / "capture.json").write_bytes(content)
    ended = CliRunner().invoke(main, ["qualify", str(tmp_path)])
    assert ended.exit_code == UNKNOWN and ended.output.count("\n") == 1 and "capture" in ended.output


def test_another_folder_is_not_written_into(tmp_path: Path):
    (tmp_path / "mine").touch()
    with pytest.raises(CaptureError, match="name another folder"):
        RunCapture("job.py", [], "").write(tmp_path)


def test_types_decide():
    rows, pairs = [np.zeros(3)], [(1, np.zeros(2))]
    assert typed_verdict([(lambda p: p[0] + p[2], "")], rows).is_read
    assert not typed_verdict([(lambda p: p[:, 0], "")], rows).is_read
    assert typed_verdict([(lambda p: p * 2, ""), (lambda p: p.sum(), "")], rows).is_read
    assert typed_verdict([(lambda v: v.sum(), "value")], pairs).is_read
    assert not typed_verdict([(lambda s: s.split(), "")], ["a"]).is_read


@pytest.mark.parametrize(("records", "wanted"), [
    ([np.zeros(4, "f4")], "rows of 4 float32"), ([1.5, 2.5], "numbers of float64"),
    (["a"], "str"), ([np.zeros(2), np.zeros(3)], "")])
def test_records_are_described(records: list, wanted: str):
    assert wanted in described(records)


def test_what_a_loop_makes_of_its_own_result_ends():
    calls = [CapturedCall(number, "job.py", 1, 1, 1, method, on=on)
             for number, (method, on) in enumerate([("cache", None), ("join", 2), ("map", 1), ("count", 2)])]
    capture = RunCapture("job.py", [], "", calls=calls)
    assert [each.method for each in capture.before(calls[3])] == ["map", "join"]
    probed = {each.number: ProbedCall(each, (), {}) for each in calls}
    assert chain_of(3, probed, {0: [1.0]}) == ([], None)
