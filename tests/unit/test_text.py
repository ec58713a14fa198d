"""Text files of numbers, without Spark: how files are cut, how lines are parsed, and rows as records."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_worker.protocol.payload import Payload
from vispark.data.records import Rows, pack
from vispark.data.records.text import reader
from vispark.data.records.text.parsing import Format
from vispark.data.records.text.reader import Reader
from vispark.data.records.text.splits import TextSplit, splits
from vispark.errors import PlanError, RecordError

pytestmark = pytest.mark.slow

THREE = Format("", "float32", 3, (("", (0, 1, 2)),))

ONE = Format("", "int32", 1, (("", 0),))

#: A context that was not stopped, of which no more is asked.
RUNNING: Any = SimpleNamespace(_jsc="a JVM's")


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("text", [b"", b"\n", b"1 2\n33 4\n\n555 6", b"1 2\r\n3 4\r\n", b"h\nh\n" + b"12 3456\n" * 9,
                                  b"1 2\r33 4\r\r555 6\r", b"1\r\n\r2\n\r\n\r\r\n3\r", b"h\rh\r" + b"12 3456\r\n" * 5])
def test_every_line_is_in_one_split(tmp_path: Path, monkeypatch, text, piece):
    monkeypatch.setattr(reader, "_PIECE", piece)
    monkeypatch.setattr(reader, "_FEW", piece)
    path = tmp_path / "lines.txt"
    path.write_bytes(text)
    text = re.sub(b"\r(?!\n)", b"\n", text)
    for skip in (0, 2):
        for parts in range(1, len(text) + 2):
            rows = []
            for split in splits(str(path), parts):
                with path.open("rb") as file:
                    for start, data in reader.lines(reader.TextFile(file), split, skip):
                        assert text[start:start + len(data)] == data
                        rows += data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n")
            assert rows == (text.removesuffix(b"\n").split(b"\n")[skip:] if text.strip() else rows)


@pytest.mark.parametrize("piece", [5, 1 << 20])
@pytest.mark.parametrize(("name", "packed"), [("f.txt", bytes), ("f.txt.gz", gzip.compress),
                                              ("f.txt.bz2", bz2.compress), ("f.txt.xz", lzma.compress)])
@pytest.mark.parametrize("ends", [(b"\r",), (b"\r\n",), (b"\r", b"\r\n", b"\n", b"\r\r", b"\n\r", b"\r\n\r\r\n")])
def test_lines_end_at_cr_too(tmp_path: Path, monkeypatch, ends, name, packed, piece):
    monkeypatch.setattr(reader, "_PIECE", piece)
    rows = [[number, number * 7 % 10, 3] for number in range(30)]
    text = b"a head" + ends[0] + b"".join(b"%d %d %d" % tuple(row) + ends[number % len(ends)]
                                          for number, row in enumerate(rows))
    (tmp_path / name).write_bytes(packed(text))
    for skip, parts in ((1, 1), (1, 7), (1, 40), (3, 5)):
        parsed = [row.tolist() for split in splits(str(tmp_path), parts) for row in Reader(THREE, skip, False)([split])]
        assert parsed == rows[skip - 1:]


def test_columns_are_counted_and_faults_named_in_lines_that_end_in_cr(tmp_path: Path):
    (tmp_path / "f.txt").write_bytes(b"h\r\n\r1 2\r3 4\r5 x\r")
    assert reader._width([str(tmp_path / "f.txt")], ONE, 1) == 2
    with pytest.raises(RecordError, match=r"f\.txt, line 5: column 1: 'x' is no float32"):
        list(Reader(Format("", "float32", 2, (("", (0, 1)),)), 1, False)(splits(str(tmp_path), 1)))


def test_files_are_found_and_cut(tmp_path: Path):
    for name, size in (("b.txt", 100), ("a.txt", 45), ("c.txt.gz", 200), ("_SUCCESS", 1), (".hidden", 1), ("empty", 0)):
        (tmp_path / name).write_bytes(b"1\n" * (size // 2) + b"2" * (size % 2))
    cuts = [(Path(split.path).name, split.start, split.end) for split in splits(str(tmp_path), 6)]
    # A split is a sixth of all, and at most a tenth of one more is left to the last.
    assert cuts == [("a.txt", 0, 45), ("b.txt", 0, 57), ("b.txt", 57, 100), ("c.txt.gz", 0, 200)]
    assert [split.end for split in splits(f"{tmp_path}/a.txt, {tmp_path}/b*", 1)] == [45, 100]
    assert splits(f"file://{tmp_path}/a.txt", 1) == [TextSplit(f"file://{tmp_path}/a.txt", 0, 45)]
    assert splits(f"file://{tmp_path}", 1)[1].path == f"file://{tmp_path}/b.txt"
    block, = Reader(ONE, 0, True)(splits(f"file://{tmp_path}/a.txt", 1))
    assert block.tolist() == [1] * 22 + [2]
    with pytest.raises(PlanError, match="no text file"):
        splits(f"{tmp_path}/nothing", 1)


@pytest.mark.parametrize("text", [b"1 2 3\n4 5 6", b" 1  2\t3 \r\n\n\t4 5   6  \n", b"1.0e0 +2 3.\n  \n 4 5 6   "])
def test_blanks_between_numbers_may_be_any(text):
    np.testing.assert_array_equal(THREE.parsed(text)[""], np.float32([[1, 2, 3], [4, 5, 6]]))


def test_numbers_are_read_as_numpy_reads_them():
    text = ["1e-46", "3.4028235e38", "nan", "-inf", "16777217", "0.1", "-0.0", "1e400"]
    numbers = Format(",", "float32", 1, (("", 0),)).parsed("\n".join(text).encode())[""]
    with np.errstate(over="ignore"):
        assert numbers.tobytes() == np.array(list(map(float, text))).astype(np.float32).tobytes()


def test_columns_become_fields():
    fields = Format(",", "int64", 3, (("y", 2), ("x", (1, 0)))).parsed(b'1,2,"3"\n4, 5 ,9007199254740993\n')
    assert fields["x"].tolist() == [[2, 1], [5, 4]] and fields["y"].tolist() == [3, 9007199254740993]
    assert THREE.parsed(b"   ")[""].shape == (0, 3)


@pytest.mark.parametrize(("line", "fault"), [
    ("1 2", "has 2 columns, where the first line has 3: '1 2'"), ("1 x 3", "column 1: 'x' is no float32"),
    ("1 2 3 4", "has 4 columns, where"), ("0x1 2 3", "column 0: '0x1' is no float32")])
@pytest.mark.parametrize("name", ["f.txt", "f.txt.gz"])
def test_a_bad_line_is_named(tmp_path: Path, monkeypatch, line, fault, name):
    monkeypatch.setattr(reader, "_PIECE", 64)
    path, text = tmp_path / name, "# a head\n" + "1 2 3\n\n" * 40 + line + "\n" + "oh no\n" * 3
    with gzip.open(path, "wt") if name.endswith("gz") else path.open("w") as file:
        file.write(text)
    with pytest.raises(RecordError) as raised:
        list(Reader(THREE, 1, False)(splits(str(path), 5)))
    assert f"{path}, line 82: {fault}" in str(raised.value)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"skip": -1}, "skip=-1; it is how many lines"), ({"skip": "a"}, "skip='a'; it is how many lines"),
    ({"minPartitions": "x"}, "minPartitions='x'; it is a whole number"), ({"dtype": "U3"}, "cannot be read as <U3"),
    ({"delimiter": "::"}, "one character, and not '::'"), ({"dtype": {"a": "i4"}}, "one dtype, of all columns: one"),
    ({"dtype": "number"}, "dtype='number' is no dtype; there are float32"), ({"dtype": [1]}, "is no dtype")])
def test_arguments_that_say_nothing_are_refused_without_spark(tmp_path: Path, arguments, message):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(PlanError, match=message):
        reader.read_text(RUNNING, tmp_path / "empty.txt", **{"minPartitions": 1, **arguments})


@pytest.mark.parametrize(("columns", "message"), [
    ({"b": slice(1, 3)}, r"not slice\(1, 3, None\); a slice is written as range\(1, 3\)"),
    (slice(-2, None), r"written as range\(1, 3\)"), ("02", "and not '02'; names are only for the fields"),
    ([0, 1.5], r"and not \[0, 1\.5\]"), ([0, 3], r"columns from 0 to 2, .* and not \[0, 3\]")])
def test_columns_that_are_none_are_refused_without_spark(tmp_path: Path, columns, message):
    (tmp_path / "three.txt").write_text("1 2 3\n")
    with pytest.raises(PlanError, match=message):
        reader.read_text(RUNNING, tmp_path / "three.txt", columns=columns, minPartitions=1)


def test_rows_are_packed_as_the_records_they_stand_for():
    rng = np.random.default_rng(1)
    for arrays in ([rng.random((5, 3), np.float32), rng.random((2, 3), np.float32)], [rng.integers(9, size=4)],
                   [rng.random((3, 2)).astype(">f8")], [rng.random(3).astype(">f4")], [np.empty((0, 4))], [],
                   [{"x": rng.random((3, 2)), "y": np.arange(3)}, {"x": rng.random((1, 2)), "y": np.arange(1)}]):
        whole, single = pack(Rows(iter(arrays)), seal=bytes), pack(list(Rows(arrays)), seal=bytes)
        assert (whole.layout, whole.count, whole.signatures) == (single.layout, single.count, single.signatures)
        assert _bytes(whole) == _bytes(single)


def _bytes(packed) -> bytes:
    with Payload.create(max(packed.nbytes, 1)) as payload:
        packed.write(payload, 0)
        return payload.array.tobytes()


@pytest.mark.parametrize(("arrays", "message"), [
    ([np.ones((2, 3)), np.ones((2, 4))], "array 1 of Rows is float64 of shape"),
    ([np.ones((2, 3, 1))], "one or two dimensions"), ([["a"]], "is a list"), ([np.array(["a"])], "array of numbers"),
    ([{"x": np.ones(2)}, {"y": np.ones(2)}], "has the fields"), ([{"x": np.ones(2), "y": np.ones(3)}], "as many rows")])
def test_rows_that_are_not_alike_are_refused(arrays, message):
    with pytest.raises(RecordError, match=message):
        pack(Rows(arrays), seal=bytes)
