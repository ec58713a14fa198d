"""Programs that parse lines of text: what reads the same, said and ported, and why others stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyspark
import pytest

from tests.unit.test_migrate_port import LOOP
from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.port.ported_program import port
from vispark.migrate.qualify.from_capture import qualify_capture
from vispark.migrate.qualify.from_source import qualify_source
from vispark.migrate.rules.advice import Advice
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.source.text_sources import TextReader, readers_of

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python"

#: Functions of a line that read_text stands for, with what it is given.
READ = {
    "lambda l: np.array([float(x) for x in l.split(',')])": '"float64", delimiter=","',
    "lambda l: np.array(list(map(float, l.split())))": '"float64"',
    "lambda l: np.array([float(x.strip()) for x in l.strip().split('\\t')], dtype=np.float32)":
        '"float32", delimiter="\\t"',
    "lambda l: np.asarray(l.split(' '), dtype=float)": '"float64"',
    "lambda l: np.array(l.split(','), 'f4')": '"float32", delimiter=","',
    "lambda l: np.fromstring(l, sep=' ')": '"float64"',
    "lambda l: np.fromstring(l, dtype=np.float32, sep=',')": '"float32", delimiter=","',
    "lambda l: np.array([int(x) for x in l.split(';')])": '"int64", delimiter=";"',
    "lambda l: np.array([float(l.split()[2]), float(l.split()[0])])": '"float64", columns=[2, 0]',
    "lambda l: np.array(l.split(',')[:3], dtype=float).astype(np.float32)":
        '"float32", delimiter=",", columns=[0, 1, 2]',
    "lambda l: float(l.split(',')[1])": '"float64", delimiter=",", columns=1',
    "float": '"float64", columns=0',
    "lambda l: tuple(float(x) for x in l.split(',')[1:4])": '"float64", delimiter=",", columns=[1, 2, 3]',
    "parse": '"float64", delimiter=","',
}

#: Functions that stay, with a part of the reason.
LEFT = {
    "lambda l: [float(x) for x in l.split(',')]": "its records are lists",
    "lambda l: np.array(l.split(',')[1:], dtype=float)": "fields whose number is not known",
    "lambda l: np.array([float(x) for x in l.split(', ')])": "what is not one character",
    "lambda l: np.array([float(x) for x in l.split(',') if x])": "not known to be numbers",
    "lambda l: np.array([float(x) + 1 for x in l.split(',')])": "float(x) + 1",
    "lambda l: np.array([float(x) for x in l.replace(',', ' ').split()])": "replace",
    "lambda l: np.array([int(x) for x in l.split()], dtype=float)": "text is read as int64",
    "lambda l: np.array([float(x) for x in l.split()], dtype=kind)": "not known without a run",
    "lambda l: (float(l.split()[0]), float(l.split()[1]))": "pairs",
    "lambda l: (l.split()[0], 1)": "not known to be numbers",
    "lambda l: int(l)": "any size",
    "lambda l: np.array([own(x) for x in l.split()])": "own",
    "twice": "more than an assignment and a return",
    "lambda l, more=3: float(l)": "not one of a line alone",
}

HEAD = """import numpy as np
def parse(line):
    '''Return the numbers of a line.'''
    parts = line.split(",")
    return np.array([float(x) for x in parts])
def own(x): return float(x) + 1
def twice(line):
    if line: return np.array(line.split(), dtype=float)
"""


def _reader(text: str) -> TextReader | str:
    reader, = readers_of(SourceProgram("job.py", HEAD + text)).values()
    return reader


@pytest.mark.parametrize(("function", "arguments"), READ.items())
def test_functions_of_lines_that_read_text_stands_for(function: str, arguments: str):
    reader = _reader(f"data = sc.textFile(path, 4).map({function}).cache()\n")
    assert isinstance(reader, TextReader), reader
    assert reader.text.removesuffix(".map(tuple)") == f"vispark.read_text(sc, path, {arguments}, minPartitions=4)"
    assert reader.text.endswith(".map(tuple)") == ("tuple(" in function)


@pytest.mark.parametrize(("function", "why"), LEFT.items())
def test_functions_of_lines_that_stay(function: str, why: str):
    answer = _reader(f"data = sc.textFile(path).map({function}).cache()\n")
    assert isinstance(answer, str) and why in answer


@pytest.mark.parametrize(("text", "why"), [
    ("data = sc.textFile(path).map(float)\nother = data.filter(f)\n", "NumPy's"),
    ("lines = sc.textFile(path)\nf(lines)\ndata = lines.map(parse).cache()\n", "used elsewhere"),
    ("lines = sc.textFile(path)\nlines.count()\ndata = lines.map(parse).cache()\n", ".count, too"),
    ("lines = sc.textFile(path)\nif x: lines = sc.textFile(other)\ndata = lines.map(parse).cache()\n", ""),
    ("data = sc.textFile(name=path).map(parse).cache()\n", "by name"),
    ("data = sc.textFile(path).map(lambda l: l).mapPartitions(f).cache()\n", "blocks=True"),
])
def test_lines_that_also_go_elsewhere_stay(text: str, why: str):
    answers = readers_of(SourceProgram("job.py", HEAD + text))
    assert all(isinstance(each, str) and why in each for each in answers.values())


def test_maps_one_behind_another_are_one_parser():
    reader = _reader("data = sc.textFile(path).map(lambda l: l.split(',')).map(lambda f: np.array(f, float)).cache()\n")
    assert isinstance(reader, TextReader) and len(reader.maps) == 2


def _recorded(text: str, reads: str | None) -> tuple[SourceProgram, RunCapture]:
    program = SourceProgram("job.py", text)
    capture = RunCapture("job.py", [], digest_of(text), sources={"job.py": text})
    for number, call in enumerate(program.calls):
        capture.calls.append(CapturedCall(
            number, "job.py", call.line, call.node.end_lineno or 0, call.node.end_col_offset or 0, call.method,
            is_read=True, times=1, reads=reads))
        if call.method == "cache":
            capture.calls[-1].sample = encoded([np.zeros(2)], capture.arrays)
    return program, capture


def _verdicts(advice: tuple[Advice, ...]) -> dict[str, str]:
    return {each.call.partition("(")[0]: each.verdict for each in advice}


TEXT = HEAD + ("lines = sc.textFile(path)  # the points\ndata = lines \\\n    .map(parse) \\\n    .cache()\n" + LOOP)


def test_what_a_recorded_run_read_the_same_is_ported():
    program, capture = _recorded(TEXT, "")
    verdicts = _verdicts(qualify_capture(capture).loops[0].advice)
    assert (verdicts[".textFile"], verdicts[".map"]) == ("read_text", "vmap") and "read_text" in verdicts.values()
    text = port(program, capture).text
    assert 'lines = vispark.read_text(sc, path, "float64", delimiter=",")' in text
    assert 'data = lines \\\n    .cache("GPU")' in text and ".map(parse)" not in text


def test_a_comment_behind_what_falls_away_is_kept_by_leaving_it():
    text = port(*_recorded(TEXT.replace(".map(parse)", ".map(  # commas\n        parse)"), "")).text
    assert "read_text" not in text and "# commas" in text and "data.vmap" in text


@pytest.mark.parametrize("reads", ["record 3 is of float32", None])
def test_what_was_not_read_the_same_is_not_ported(reads: str | None):
    program, capture = _recorded(TEXT, reads)
    ported = port(program, capture)
    assert ported.loops and ".map(parse)" in ported.text and "read_text" not in ported.text
    if reads:
        detail, = (each.detail for each in qualify_capture(capture).loops[0].advice if each.call == ".map(parse)")
        assert reads in detail


def test_by_the_source_alone_it_is_said_and_not_ported():
    program = SourceProgram("job.py", TEXT)
    details = [each.detail for each in qualify_source(program).loops[0].advice if each.verdict == "read_text"]
    assert any("a recorded run says whether it reads the same" in each for each in details)
    assert "read_text" not in port(program).text


def test_text_that_a_frame_reads_is_advice_with_its_reason():
    answer = qualify_source(SourceProgram.read(EXAMPLES / "kmeans.py"))
    detail, = (each.detail for each in answer.loops[0].advice if each.call == ".map(parseVector)")
    assert 'vispark.read_text(spark.sparkContext, sys.argv[1], "float64")' in detail and "takeSample" in detail
    assert 'line["split"]' not in answer.text()
