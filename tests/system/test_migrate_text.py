"""Records of ``vispark.read_text`` in place of parsers that the command knows, one by one, on real Spark."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from pyspark import SparkContext

from tests.unit.test_migrate_text import HEAD, READ
from vispark.migrate.record.compared_reading import why_not_read
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.source.text_sources import TextReader, readers_of

pytest.importorskip("pyarrow")

#: Numbers that are rounded twice where a float64 becomes a float32, small, large, and none at all.
ROWS = [["1.5", "-2", "3e-3", "0.1"], ["1.00000017881393432617187499", "7.038531e-26", "nan", "-inf"],
        ["1e-45", "16777217", "123456789.123456789", "-0.0"]] + [[f"{i}", f"{i / 7}", f"{-i}", "2"] for i in range(400)]


def _lines(delimiter: str | None, whole: bool, single: bool) -> str:
    rows = [[str(int(float(x))) if np.isfinite(float(x)) else "0" for x in row] for row in ROWS] if whole else ROWS
    return "".join(f"{row[0] if single else (delimiter or ' ').join(row)}\n" for row in rows)


@pytest.mark.parametrize("function", READ)
def test_records_of_read_text_are_those_of_the_parser(sc: SparkContext, tmp_path: Path, function: str):
    program = SourceProgram("job.py", f"{HEAD}data = sc.textFile(path).map({function}).cache()\n")
    reader, = readers_of(program).values()
    assert isinstance(reader, TextReader)
    path, value = tmp_path / "lines.txt", reader.value
    path.write_text(_lines(value.delimiter or None, "int" in value.dtype, function == "float"))
    names: dict = {}
    exec(HEAD, names)
    parse = eval(ast.unparse(program.calls[1].node.args[0]), names)
    assert why_not_read(reader, sc.textFile(str(path)), [parse], 1000) == ""
    path.write_text(path.read_text().replace("2", "3"))
    assert why_not_read(reader, sc.textFile(str(path)), [lambda line: parse(line.replace("3", "4"))], 1000) != ""


def test_what_is_no_number_is_a_reason(sc: SparkContext, tmp_path: Path):
    program = SourceProgram("job.py", f"{HEAD}data = sc.textFile(path).map(parse).cache()\n")
    reader, = readers_of(program).values()
    assert isinstance(reader, TextReader)
    (tmp_path / "lines.txt").write_text("a,b\n1,2\n")
    why = why_not_read(reader, sc.textFile(str(tmp_path / "lines.txt")), [lambda line: np.zeros(2)], 10)
    assert "lines.txt, line 1: column 0: 'a'" in why
