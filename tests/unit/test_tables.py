"""Tables without Spark: what is imported when, and what is said where Arrow is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vispark.errors import PlanError
from vispark.records import pack
from vispark.records.streamed_rows import StreamedRows
from vispark.tables.files import FilePart, FileSlice, ReadTask, partitions
from vispark.tables.parquet import ParquetFormat
from vispark.tables.selection import select


def _said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True,
                          timeout=60).stdout


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["import vispark", "import vispark.api.vrdd"])
def test_arrow_is_imported_by_tables_alone(statement: str):
    assert _said(f"import sys\n{statement}\nprint('pyarrow' in sys.modules)") == "False\n"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["from_dataframe(None)", "read_parquet(None, 'x')", "read_orc(None, 'x')",
                                  "read_csv(None, 'x')"])
def test_a_missing_arrow_is_told_with_the_command(call: str):
    said = _said("import sys\nsys.modules['pyarrow'] = None\nimport vispark\n"
                 f"try:\n    vispark.{call}\nexcept vispark.PlanError as error:\n    print(error)")
    assert f"{call.partition('(')[0]} needs pyarrow: pip install '.[dataframe]'" in said


def _parts(*sizes: int) -> list[FileSlice]:
    return [FileSlice("f", FilePart(number, 100, nbytes << 20)) for number, nbytes in enumerate(sizes)]


@pytest.mark.parametrize(("sizes", "least", "found"), [
    ((1, 1, 1), None, [[0, 1, 2]]),                 # small ones go together
    ((50, 50, 50, 50), None, [[0], [1], [2], [3]]),     # never more than 64 MiB
    ((30, 30, 30), None, [[0], [1], [2]]),          # for four cores
    ((1, 200), None, [[0], [1], [1], [1], [1]]),    # a huge one is cut
    ((8, 8), 4, [[0], [0], [1], [1]]),              # as many as are asked for
    ((), None, []),
])
def test_parts_are_packed_in_order(sizes, least, found):
    made = partitions(_parts(*sizes), 64 << 20, 4, least)
    assert [[each.part.number for each in share] for share in made] == found


def test_slices_of_a_part_have_each_row_once():
    for count in range(1, 9):
        slices = [FileSlice("f", FilePart(0, 7, 1), index, count) for index in range(count)]
        rows = [row for each in slices for row in range(*each.rows(7))]
        assert rows == list(range(7))


# -- arrays that are made while they are written ----------------------------------------------------------------------

class Written:
    """Memory that arrays are put to, each behind the one before."""

    def __init__(self) -> None:
        self.arrays: dict[int, np.ndarray] = {}

    def put(self, offset: int, array: np.ndarray) -> None:
        if self.arrays:
            last = max(self.arrays)
            assert offset >= last + self.arrays[last].nbytes
        self.arrays[offset] = array.copy()


def test_fields_of_a_file_are_read_while_they_are_written(tmp_path: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, x = str(tmp_path / "points.parquet"), np.arange(30_000.0)
    pq.write_table(pa.table({"x": x, "y": -x, "k": np.int32(x)}), path, row_group_size=9000)
    form = ParquetFormat()
    selection = select(form.footer(path, None, None).schema, {"k": "k", "p": ["y", "x"]}, {"p": "float32"}, "error",
                       "the file")
    slices = [FileSlice(path, part) for part in form.footer(path, selection, None).parts]
    found = ReadTask(form, selection, None, False)([(*slices[:2], *slices[2:])])
    assert isinstance(found, StreamedRows)
    packed = pack(found, seal=bytes)
    assert [field.shape for field in packed.signatures[0].fields] == [(30_000,), (30_000, 2)]
    for _ in range(2):      # a worker that is lost has it sent again
        memory = Written()
        packed.write_blocks(memory, 0)
        arrays = list(memory.arrays.values())
        np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 1]), np.int32(x))
        np.testing.assert_array_equal(np.concatenate([each for each in arrays if each.ndim == 2]),
                                      np.float32(np.stack([-x, x], axis=1)))
    assert len(list(ReadTask(form, selection, None, False)([tuple(slices)]))) == 30_000


@pytest.mark.parametrize(("arrays", "words"), [([], "of 3 rows had 0"), ([np.zeros(2)], "of 3 rows had 2"),
                                               ([np.zeros(2), np.zeros(2)], "of 3 rows had 4")])
def test_other_rows_than_were_looked_up(arrays, words):
    with pytest.raises(PlanError, match=words):
        pack(StreamedRows([], 3, {"": lambda: iter(arrays)}), seal=bytes).write_blocks(Written(), 0)


def test_no_rows_are_not_read():
    assert pack(StreamedRows([], 0, {"": lambda: iter(())}), seal=bytes).count == 0
