"""Tables without Spark: what is imported when, and what is said where Arrow is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vispark.tables.files import FilePart, FileSlice, partitions


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
