"""Forms of programs: notebooks, classes, pairs that functions take apart, programs of DataFrames alone."""

from __future__ import annotations

import errno
import importlib
import json
import textwrap
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.cli import main
from vispark.migrate.errors import NO, UNKNOWN, USAGE, YES, OutputError, SourceError
from vispark.migrate.port.ported_program import PortedProgram, port
from vispark.migrate.qualify import dataframes
from vispark.migrate.qualify.from_source import qualify_source
from vispark.migrate.record.whole_numbers import leave_64_bits
from vispark.migrate.rules.record_forms import RecordForm, verdict_by_form
from vispark.migrate.rules.typed_verdicts import as_dicts, is_of_pairs, of_dicts, typed_verdict
from vispark.migrate.source.notebooks import notebook_with, script_of
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.history import History

CELLS = ("%matplotlib inline\nimport numpy as np\n!ls\n", "data = sc.textFile('x').map(float).cache()\nw = 1.0\n",
         "%%bash\necho for i in x\n",
         "for _ in range(9):\n    w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)\nw")

WRITTEN = "data = sc.textFile('x').map(float).cache()\nfor _ in range(9):\n    data.map(lambda x: x + 1).sum()\n"


def _notebook(path: Path, *cells: str) -> Path:
    document = {"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "markdown", "source": ["# Ä for x in"]}]}
    document["cells"] += [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": [{"x": 1}],
                           "execution_count": 3} for cell in cells]
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _vispark(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


# -- notebooks -------------------------------------------------------------------------------------------------------

def test_a_notebook_qualifies_by_its_cells(tmp_path: Path):
    ended = _vispark("qualify", "--no-history", str(_notebook(tmp_path / "job.ipynb", *CELLS)))
    assert ended.exit_code == YES, ended.output
    assert "job.ipynb, line 16: for" in ended.output and ".reduce(lambda a, b: a + b)" in ended.output
    assert "cell 2 from line 2 on, cell 3 from line 7 on, cell 4 from line 11 on, cell 5 from" in ended.output


def test_the_port_of_a_notebook_is_a_notebook(tmp_path: Path):
    path = _notebook(tmp_path / "job.ipynb", *CELLS)
    before = json.loads(path.read_text())
    program = SourceProgram.read(path)
    notebook = json.loads(notebook_with(path, port(program).text))
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    assert sources[1] == "%matplotlib inline\nimport numpy as np\nimport vispark\n!ls"
    assert '.cache("GPU")' in sources[2] and "data.vmap(" in sources[4]
    assert notebook["cells"][0] == before["cells"][0] and notebook["cells"][3] == before["cells"][3]
    assert notebook["cells"][4]["outputs"] == [] and notebook["cells"][3]["outputs"] == [{"x": 1}]
    assert json.loads(notebook_with(path, program.source)) == before
    assert _vispark("port", "--no-history", str(path)).exit_code == UNKNOWN     # not run


@pytest.mark.parametrize(("content", "message"), [
    ("{}", "no list of cells"), ("[1", "is no notebook"), ('{"cells": [3]}', "no list of cells"),
    ('{"cells": [], "metadata": {"language_info": {"name": "scala"}}}', "of scala, not of Python")])
def test_what_is_no_notebook_of_python(tmp_path: Path, content: str, message: str):
    path = tmp_path / "job.ipynb"
    path.write_text(content)
    ended = _vispark("qualify", str(path))
    assert ended.exit_code == UNKNOWN and message in ended.output and ended.output.count("\n") == 1


def test_a_script_with_other_cells_is_no_port_of_a_notebook(tmp_path: Path):
    path = _notebook(tmp_path / "job.ipynb", *CELLS)
    with pytest.raises(SourceError, match="has the cells"):
        notebook_with(path, script_of(path).replace("# %% cell 3\n", ""))


# -- classes ---------------------------------------------------------------------------------------------------------

MODEL = '''
class Model:
    def __init__(self, sc, path):
        self.sc = sc
        self.data = self.load(path)
        self.data.cache()
        self.w = 1.0

    def load(self, path):
        return self.sc.textFile(path).map(float)

    def step(self):
        w = self.w
        self.w -= self.data.map(lambda x: x * w).reduce(lambda a, b: a + b)

    def fit(self, steps):
        for _ in range(steps):
            self.step()
'''
GIVEN = '''
class Model:
    @property
    def points(self):
        return self._points

    def fit(self, points):
        self._points = points.cache()
        for _ in range(9):
            w = self.points.map(lambda x: x * 2).sum()

Model().fit(sc.textFile(path).map(float))
'''


@pytest.mark.parametrize(("text", "line", "changes"), [
    (MODEL, 17, ['self.data = self.data.cache("GPU")',
                 "self.w -= self.data.vmap(lambda x: x * w).reduce(lambda a, b: a + b)"]),
    (GIVEN, 9, ['self._points = points.cache("GPU")', "w = self.points.vmap(lambda x: x * 2).sum()"])])
def test_loops_of_methods_over_attributes(text: str, line: int, changes: list[str]):
    program = SourceProgram("job.py", text)
    loop, = qualify_source(program).loops
    assert loop.line == line and {each.verdict for each in loop.advice} == {"vmap", "fold", "cache", "read_text"}
    ported = port(program)
    assert ported.refused == () and [each.strip() for each in ported.text.splitlines()
                                     if each not in text.splitlines()][1:] == changes


@pytest.mark.parametrize("text", [
    "class A:\n    def __init__(self):\n        self.data = [1]\n    def f(self):\n        for i in x:\n"
    "            self.data.count(1)\n",
    "class A:\n    def data(self):\n        return self.data()\nfor i in x:\n    A().data().count()\n",
    "class A:\n    def f(self):\n        self.x = self.x\n        for i in x:\n            self.x.map(f).count()\n"])
def test_attributes_that_are_no_rdds(text: str):
    assert qualify_source(SourceProgram("job.py", text)).loops == ()


# -- pairs -----------------------------------------------------------------------------------------------------------

PAIRS = [(float(i), np.arange(3.0) + i) for i in range(4)]


def gradient(pair):
    y, x = pair
    return (np.dot(x, x) - y) * x


@pytest.mark.parametrize("function", [lambda p: (np.dot(p[1], p[1]) - p[0]) * p[1], gradient])
def test_functions_that_take_pairs_apart_translate_where_these_are_dicts(function):
    assert is_of_pairs(PAIRS)
    assert typed_verdict([(of_dicts(function), "")], as_dicts(PAIRS)).is_read


def _port(text: str, pairs: bool = True, other: Any = PAIRS) -> PortedProgram:
    """Return the port of a program of which a recording knows that the functions take pairs apart.

    What is cached by the name "held" are ``other`` records; None where it did not run.
    """
    text = textwrap.dedent(text)
    program, arrays = SourceProgram("job.py", text), {}
    calls = [CapturedCall(number, "job.py", call.line, call.node.end_lineno, call.node.end_col_offset, call.method,
                          times=3, is_read=True, pairs=pairs and call.method == "map" and "lambda line" not in
                          program.text_of(call.node),
                          sample=None if call.method != "cache" else encoded(
                              other if call.line == 4 and "held" in text else PAIRS, arrays))
             for number, call in enumerate(program.calls)]
    return port(program, RunCapture("job.py", [], digest_of(text), calls=calls, arrays=arrays))


BEFORE = "data = sc.textFile(path).map(lambda line: read(line)).cache()\nprint(data.count())\n"
DICTS = 'sc.textFile(path).map(lambda line: read(line)).map(lambda kv: {"key": kv[0], "value": kv[1]}).cache("GPU")'


@pytest.mark.parametrize(("function", "changed"), [
    ("lambda p: p[1] * (p[0] - w)", 'lambda p: p["value"] * (p["key"] - w)'),
    ("lambda p: f(p) * p[-1]", 'lambda p: f((p["key"], p["value"])) * (p["key"], p["value"])[-1]'),
    ("gradient", 'lambda kv: gradient((kv["key"], kv["value"]))')])
def test_pairs_become_dicts_before_the_cache(function: str, changed: str):
    ported = _port(f"{BEFORE}for i in b:\n    w -= data.map({function}).reduce(lambda a, b: a + b)\n")
    assert ported.refused == () and f"data = {DICTS}\n" in ported.text
    assert f"w -= data.vmap({changed}).reduce(lambda a, b: a + b)\n" in ported.text


def test_lists_of_what_is_cached_are_of_pairs_as_before():
    ported = _port(f"{BEFORE}x, y = data.take(1)[0]\nfor i in b:\n    w -= data.map(lambda p: p[1] * w).sum()\n")
    assert ported.refused == () and 'x, y = [(kv["key"], kv["value"]) for kv in data.take(1)][0]\n' in ported.text


TWO = """def total(data, w):
    return data.map(lambda p: p[1] * w).sum()
train = sc.textFile(a).map(lambda line: read(line)).cache()
held = sc.textFile(b).map(lambda line: read(line)).cache()
old = train.map(lambda p: p[0]).collect()
for i in b:
    w -= total(train, w)
print(total(held, w))
"""


def test_two_cached_rdds_that_share_a_function_are_ported_together():
    ported = _port(TWO)
    assert ported.refused == () and ported.text.count(DICTS.partition(")")[2]) == 2
    assert "import vispark\n" in ported.text
    assert 'data.vmap(lambda p: p["value"] * w).sum()' in ported.text
    assert 'train.map(lambda p: p["key"]).collect()' in ported.text


@pytest.mark.parametrize(("other", "reason"), [
    (None, "a recording in which each of them is filled"),
    ([(1.0, np.ones(2))], "records of several kinds"), ([np.ones(3)], "records of several kinds")])
def test_two_cached_rdds_of_several_kinds_take_a_decision(other: list | None, reason: str):
    ported = _port(TWO, other=other)
    assert ported.loops == () and reason in ported.refused[0] and "lines 3, 4" in ported.refused[0]


@pytest.mark.parametrize(("text", "reason"), [
    ("for i in b:\n    w -= data.map(lambda p: max(p[0] for p in x)).sum()\n", "make them dicts before the cache"),
    ("for i in b:\n    w -= data.map(lambda p: p[1]).sum()\nprint(data.lookup(3))\n", "goes over the pairs, too")])
def test_pairs_that_take_a_decision(text: str, reason: str):
    ported = _port(BEFORE + text)
    assert ported.loops == () and reason in ported.refused[0]


# -- modules beside a script -----------------------------------------------------------------------------------------

STEPS = """from pyspark import SparkContext
def fit(sc):
    data = sc.textFile("x").map(float).cache()
    for _ in range(9):
        w = data.map(lambda x: x * 2).sum()
def step(data, w):
    return w - data.map(lambda x: x * w).treeReduce(lambda a, b: a + b)
"""


def test_modules_beside_a_script_are_looked_at(tmp_path: Path):
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "broken.py").write_text("for x in")
    (tmp_path / "job.py").write_text("import broken, json\nimport steps\nfrom steps import step as one\nsteps.fit(sc)\n"
                                     "for _ in range(3):\n    w = steps.step(data, w)\n    w = one(data, w)\n")
    ended = _vispark("qualify", "--no-history", str(tmp_path / "job.py"))
    assert ended.exit_code == YES, ended.output
    assert "steps.py, line 4: for" in ended.output and "vmap: .vmap" in ended.output
    assert "job.py, line 6: step of steps.py has operations of RDDs, lines 7; bring them into the loop" in ended.output


# -- DataFrames ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "message"), [
    ("spark.read.csv(p).groupBy('a').sum().show()\n", "DataFrames and SQL stay with Spark, whose engine is the JVM; "
                                                      "nothing of it gains"),
    ("@udf('double')\ndef f(x):\n    return x\nspark.range(9).select(f('id')).show()\n", 'line 2: udf: @vispark.udf("'),
    ("f = F.pandas_udf(g, 'double')\nspark.range(9).select(f('id'))\n", "line 1: pandas_udf: @vispark.udf"),
    ("spark.range(9).mapInPandas(f, s)\n", "line 1: mapInPandas: its function is of blocks"),
    ("from pyspark.ml.clustering import KMeans\nKMeans(k=3).fit(spark.read.csv(p))\n",
     "line 2: KMeans: that of vispark.ml.clustering fits in the workers"),
    ("spark = SparkSession.builder.remote('sc://h').getOrCreate()\nspark.range(9).show()\n",
     "line 1: Spark Connect has no RDDs"),
    ("print(1)\n", "nor of a DataFrame")])
def test_programs_of_data_frames_alone_get_an_answer(tmp_path: Path, text: str, message: str):
    path = tmp_path / "job.py"
    path.write_text(text)
    ended = _vispark("qualify", "--no-history", "--no-import", str(path))
    assert ended.exit_code == NO and message in ended.output


def test_a_recording_of_data_frames_alone_is_an_answer_too(tmp_path: Path):
    text = "spark.range(9).groupBy('id').count().show()\n"
    RunCapture("job.py", [], digest_of(text), sources={"job.py": text}).write(tmp_path / "capture")
    ended = _vispark("qualify", "--no-history", str(tmp_path / "capture"))
    assert ended.exit_code == NO and "DataFrames and SQL stay with Spark" in ended.output


def test_estimators_that_are_named_are_those_that_there_are():
    for name, module in dataframes.ESTIMATORS.items():
        assert hasattr(importlib.import_module(f"vispark.ml.{module}"), name)


# -- what is no program ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", ["qualify", "port", "record", "run", "profile", "tune", "validate", "submit"])
def test_what_is_no_python_is_one_message_and_starts_nothing(command: str, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("def f(x:\n    return x\n")
    ended = _vispark(command, "job.py", *(["job.py"] if command == "validate" else []))
    assert (ended.exit_code, ended.exception is None or isinstance(ended.exception, SystemExit)) == (UNKNOWN, True)
    assert ended.output == "vispark: job.py, line 1 is no Python: '(' was never closed\n"
    assert not (tmp_path / "job.capture").exists()
    assert command == "submit" or _vispark(command, "none.py").exit_code == USAGE


def test_an_option_behind_the_script_is_named_as_it_is_the_programs(tmp_path: Path):
    (tmp_path / "job.py").write_text("pass\n")
    ended = _vispark("submit", "--dry-run", str(tmp_path / "job.py"), "--cluster", "x", "--k=3", "--history")
    assert ended.exit_code == YES
    assert "vispark: --cluster, --history behind the script: the program's" in ended.stderr
    assert ended.stdout.endswith("job.py --cluster x --k=3 --history\n")


@pytest.mark.parametrize(("words", "message"), [
    (("record", "--out", "other"), "other is there and is no capture: name another folder"),
    (("record", "--out", "file/c"), "file/c cannot be made: Not a directory; --out names another folder"),
    (("run", "--out", "file/c"), "file/c cannot be made: Not a directory; --out names another folder"),
    (("profile", "--trace", "none/t.json"), "/none/t.json cannot be written: there is no directory"),
    (("profile", "--journal", "none/plans"), "none/plans cannot be written: there is no directory"),
    (("port", "--out", "none/p.py"), "none/p.py cannot be written: there is no directory"),
    (("port", "--out", "file/p.py"), "file/p.py cannot be written: "),
    (("calibrate", "--out", "none/c.json"), "none/c.json cannot be written: there is no directory")])
def test_what_cannot_be_written_is_said_before_the_program_runs(words: tuple[str, ...], message: str, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    Path("other", "text").touch()
    Path("file").touch()
    Path("job.py").write_text("open('ran', 'w').close()\n")
    ended = _vispark(*words, *(["job.py"] if words[0] != "calibrate" else []))
    assert ended.exit_code == UNKNOWN and message in ended.output and "Traceback" not in ended.output
    assert not Path("ran").exists()


@pytest.mark.parametrize("words", [("port",), ("report", "html", "1", "--out")])
def test_a_file_that_cannot_be_written_is_as_it_was(words: tuple[str, ...], tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch):
    def full(self: Path, *_: object, **__: object) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setenv("VISPARK_HISTORY", str(tmp_path / "history.db"))
    History().job(str(tmp_path / "job.py"))
    (tmp_path / "job.py").write_text(WRITTEN)
    monkeypatch.setattr(Path, "write_text", full)
    if words[0] == "port":
        program = port(SourceProgram.read(tmp_path / "job.py"))
        with pytest.raises(OutputError, match=r"job\.py cannot be written: No space left"):
            program.write(tmp_path / "job.py")
    else:
        ended = _vispark(*words, str(tmp_path / "job.py"))
        assert ended.exit_code == UNKNOWN and "job.py cannot be written: No space left" in ended.output
    assert (tmp_path / "job.py").read_text() == WRITTEN and sorted(each.name for each in tmp_path.glob("*job*")) == [
        "job.py"]


# -- tuples ----------------------------------------------------------------------------------------------------------

LabelledSpot = namedtuple("LabelledSpot", "label x y")
Both = namedtuple("Both", "label x")


def _energy(spot: Any) -> float:
    return spot.x * spot.y + spot.label


@pytest.mark.parametrize(("function", "records", "form"), [
    (lambda r: r[0] % 2, [(1, 0.5, 2.0), (3, 1.5, 2.5)], RecordForm(of="record")),
    (lambda r: r[0] * r[2], [(1.0, 0.5, 2.0)], RecordForm()),
    (lambda r: (r[2] - r[1].sum() + r[1][r[0]], 1), [(1, np.arange(3.0), 2.0)], RecordForm(of="record")),
    (lambda r: r[1][0] * r[0], [(1, (2.0, 3.0, 4.0))], RecordForm(of="record")),
    (_energy, [LabelledSpot(1, 0.5, 2.0)], RecordForm(of="record")),
    (lambda p: p.x * 2, [Both(1, 0.5)], RecordForm(pairs=True))])
def test_records_have_a_form_with_which_functions_translate(function: Any, records: list, form: RecordForm):
    verdict, chosen, (functions, held) = verdict_by_form([(function, "")], records)
    assert verdict.is_read and chosen == form
    assert [functions[0][0](each) for each in held] == [function(each) for each in records]


def test_what_is_in_the_way_of_a_function_of_pairs_is_its_own_reason():
    def grown(pair: Any) -> Any:
        grad = []
        grad += [pair[0] * pair[1]]
        return grad

    verdict, _, _ = verdict_by_form([(grown, "")], [(1.0, 2.0), (2.0, 3.0)])
    assert not verdict.is_read and verdict.reason.startswith("grad += changes the list") and verdict.line


def _tuples(text: str, **known: Any) -> PortedProgram:
    """Return the port of a program whose cached records are tuples, with what a recording knows of its maps."""
    program, arrays = SourceProgram("job.py", text), {}
    calls = [CapturedCall(number, "job.py", call.line, call.node.end_lineno, call.node.end_col_offset, call.method,
                          times=3, is_read=True, **(known if call.method in ("map", "filter") else {}),
                          sample=encoded([(1, 0.5, 2.0)], arrays) if call.method == "cache" else None)
             for number, call in enumerate(program.calls)]
    return port(program, RunCapture("job.py", [], digest_of(text), calls=calls, arrays=arrays))


HELD = "from spots import LabelledSpot\ndata = sc.parallelize(a).cache()\n"


def test_tuples_of_several_types_are_ported_as_records():
    ported = _tuples(HELD + "for i in b:\n    n = data.map(lambda r: r[0] % i).sum()\n", of="record")
    assert 'n = data.vmap(lambda r: r[0] % i, of="record").sum()' in ported.text


@pytest.mark.parametrize(("function", "changed"), [
    ("lambda s: s.x * s[0] + f(s)", "lambda s: s[1] * s[0] + f(LabelledSpot(*s))"),
    ("energy", "lambda each: energy(LabelledSpot(*each))")])
def test_named_tuples_become_tuples_before_the_cache(function: str, changed: str):
    ported = _tuples(f"{HELD}print(data.take(2))\nfor i in b:\n    n = data.map({function}).sum()\n", of="record",
                     named=["LabelledSpot", "label", "x", "y"])
    assert ported.refused == () and 'data = sc.parallelize(a).map(tuple).cache("GPU")\n' in ported.text
    assert f'n = data.vmap({changed}, of="record").sum()\n' in ported.text
    assert "print([LabelledSpot(*each) for each in data.take(2)])\n" in ported.text


def test_named_tuples_of_a_class_without_a_name_take_a_decision():
    ported = _tuples(HELD + "for i in b:\n    n = data.map(lambda s: s.x).sum()\n", of="record", named=["Other", "x"])
    assert ported.loops == () and "a class for which the program has no name at its top" in ported.refused[0]


def test_a_filter_that_workers_do_stays_as_it_is():
    text = ("data = sc.parallelize(a).cache()\nfor i in b:\n    left = data.filter(lambda p: p > i)\n"
            "    n, s = left.count(), left.map(lambda p: p * i).sum()\n")
    assert "left = data.filter(lambda p: p > i)\n    n, s = left.count(), left.vmap(lambda p: p * i).sum()" \
        in _tuples(text).text
    refused = _tuples(text, stays="the records are pairs")
    assert refused.loops == () and "the records are pairs" in refused.refused[0]


@pytest.mark.parametrize(("records", "why"), [
    (["a text"], "record 0 is a str; text can be a key"), ([([1.0, 2.0], 1.0)], "field 'key' of record 0 is a list"),
    ([Both(1, [0.5])], "the value of record 0 is a list")])
def test_records_that_no_worker_holds_are_the_reason(records: list, why: str):
    verdict, _, _ = verdict_by_form([(lambda record: record.replace(1), "")], records)
    assert not verdict.is_read and why in verdict.reason


@pytest.mark.parametrize(("function", "records", "leaves"), [
    (lambda x: (x * 6364136223846793005 + 1442695040888963407) % 1000003, range(-500, 500), True),
    (lambda x: x ** 12, range(1, 60), True), (lambda x: x ** 4, range(1, 60), False),
    (lambda x: x * 2.0 ** 80, range(3), False), (lambda x: 2 ** 62 - x, [-2 ** 62], True),
    (lambda x: -x, [-2 ** 63], True),
    (lambda p: p[0] << 40, [(2 ** 30, 1.0)], True), (lambda x: x * 2 ** 62, [np.int64(4)], False),
    (lambda x: x / 0, [1], False), (lambda x: 1 / x + abs(x) // 3, [4], False)])
def test_whole_numbers_that_leave_64_bits_are_seen(function, records, leaves):
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert leave_64_bits([(function, "")], records) == leaves
