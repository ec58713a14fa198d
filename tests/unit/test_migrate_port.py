"""``vispark port``: edits at places of the syntax tree, and the loops that are left as they are."""

from __future__ import annotations

import ast
import difflib
import textwrap
from pathlib import Path

import numpy as np
import pyspark
import pytest
from click.testing import CliRunner

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.cli import main
from vispark.migrate.errors import NO, UNKNOWN, SourceError
from vispark.migrate.port.ported_program import PortedProgram, port
from vispark.migrate.record.recorder import Recorder, _Live
from vispark.migrate.source.edits import Edit, SourceBytes
from vispark.migrate.source.program import SourceProgram

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python"


def _port(text: str) -> PortedProgram:
    return port(SourceProgram("job.py", textwrap.dedent(text)))


def _changed(text: str) -> list[str]:
    """Return the lines of a source that its port has in place of others."""
    ported = _port(text)
    assert ported.refused == (), ported.refused
    return [line[2:].strip() for line in difflib.ndiff(ported.program.source.splitlines(), ported.text.splitlines())
            if line.startswith("+ ")]


LOOP = "for i in b:\n    w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)\n"


@pytest.mark.parametrize(("before", "wanted"), [
    ("data = sc.parallelize(a).cache()\n", ['data = sc.parallelize(a).cache("GPU")']),
    ("data = sc.parallelize(a).persist(StorageLevel.DISK_ONLY)\n", ['data = sc.parallelize(a).cache("GPU")']),
    ("data = sc.parallelize(a)\ndata.cache()\n", ['data = data.cache("GPU")']),
    ("data = sc.parallelize(a)\ndata.cache().first()\n", ['data = data.cache("GPU")', "data.first()"]),
    ("data = sc.parallelize(a)\nn = data.cache().count()\n", ['data = data.cache("GPU")', "n = data.count()"]),
    ("data = sc.parallelize(a)\nn = 1; data.cache().count()\n", ['n = 1; data = data.cache("GPU"); data.count()']),
    ("data = sc.parallelize(a)\nif data.cache().count():\n    print(1)\n",
     ['data = data.cache("GPU")', "if data.count():"]),
    ("data = sc.parallelize(a)\nwith x:\n    print(data.persist(s).count())\n",
     ['data = data.cache("GPU")', "print(data.count())"]),
    ("data = sc.parallelize(a)\nkept = data.cache()\n", ['data = data.cache("GPU")', "kept = data"]),
    ("data = sc.parallelize(a)\\\n    .cache( )  # kept\n", ['.cache("GPU")  # kept']),
    ("é = 'ü'; data = sc.parallelize(é).cache()\n", ["é = 'ü'; data = sc.parallelize(é).cache(\"GPU\")"]),
])
def test_ways_to_cache(before: str, wanted: list[str]):
    assert _changed(before + LOOP) == ["import vispark", *wanted,
                                       "w -= data.vmap(lambda x: x * w).reduce(lambda a, b: a + b)"]


@pytest.mark.parametrize(("before", "why"), [
    ("def warm(x):\n    x.cache().count()\ndata = sc.parallelize(a)\nwarm(data)\n", "cache it there"),
    ("data = sc.parallelize(a)\ndef warm():\n    data.cache().count()\nwarm()\n", "cache it there"),
    ("data = sc.parallelize(a)\nif b:\n    pass\nelif data.cache().count():\n    pass\n", "before the statement"),
])
def test_a_cache_for_its_effect_that_no_name_can_have(before: str, why: str):
    assert why in _port(before + LOOP).refused[0]


def test_a_cache_for_its_effect_in_a_function_that_returns_its_parameter():
    before = "def warm(x):\n    x.cache().count()\n    return x\ndata = warm(sc.parallelize(a))\n"
    assert _changed(before + LOOP)[1:3] == ['x = x.cache("GPU")', "x.count()"]


@pytest.mark.parametrize(("before", "line"), [
    ("'''Doc.'''\nimport os\nimport sys  # last\nx = 1\n", 4), ("'''Doc.'''\n", 2), ("x = 1\n", 1),
    ("from __future__ import annotations\n", 2), ("import os\nx = 1\nimport sys\n", 2)])
def test_the_import_comes_behind_the_first_ones(before: str, line: int):
    text = _port(f"{before}data = sc.parallelize(a).cache()\n{LOOP}").text
    assert text.splitlines()[line - 1] == "import vispark"


def test_an_import_that_is_there_is_enough():
    assert _port("import vispark\ndata = sc.parallelize(a).cache()\n" + LOOP).text.count("import vispark") == 1


def test_few_records_become_a_list_of_the_driver():
    text = _port("""
        data = sc.parallelize(a).cache()
        while t:
            n = data.map(lambda p: (0, p)).reduceByKey(lambda a, b: a + b).map(lambda s: s[1] / 2).collect()
        """).text
    assert 'n = [s[1] / 2 for s in data.vmap(lambda p: (0, p)).reduceByKey(lambda a, b: a + b).collect()]' in text


@pytest.mark.parametrize(("behind", "left", "right"), [
    ("map(lambda s: s[1] / 2).collect()", "[s[1] / 2 for s in ", ".collect()]"),
    ("map(half).collect()", "[half(each) for each in ", ".collect()]"),
    ("mapValues(lambda s: s / 2).collect()", "[(key, s / 2) for key, s in ", ".collect()]"),
    ("mapValues(lambda s: s / key).collectAsMap()", "dict([(number, s / key) for number, s in ", ".collect()])"),
    ("mapValues(half).collectAsMap()", "dict([(key, half(value)) for key, value in ", ".collect()])"),
    ("mapValues(lambda s, t=2: s / t).collect()", "", ".mapValues(lambda s, t=2: s / t).collect()"),
])
def test_what_the_driver_does_with_few_records(behind: str, left: str, right: str):
    chain = "data.map(lambda p: (0, p)).reduceByKey(lambda a, b: a + b)"
    text = f"data = sc.parallelize(a).cache()\nwhile t:\n    n = {chain}.{behind}\n"
    assert _changed(text)[-1] == f"n = {left}{chain.replace('map', 'vmap')}{right}"


@pytest.mark.parametrize(("call", "wanted"), [
    ("filter(lambda x: x > i).count()", "vmap(lambda x: 1 if x > i else 0).sum()"),
    ("filter(lambda x: (x > i)).count( )", "vmap(lambda x: (1 if x > i else 0)).sum( )"),
    ("filter(lambda x: 1 if x > i else 0).count()", "vmap(lambda x: 1 if (1 if x > i else 0) else 0).sum()"),
    ("map(lambda x: x + i).filter(good).count()",
     "vmap(lambda x: x + i).vmap(lambda each: 1 if good(each) else 0).sum()"),
])
def test_what_a_filter_leaves_is_counted_by_a_sum(call: str, wanted: str):
    before = "def good(x):\n    return x > 2\ndata = sc.parallelize(a).cache()\nfor i in b:\n    n = data."
    assert _changed(before + call + "\n")[-1] == "n = data." + wanted


def test_what_a_filter_leaves_of_pairs_is_counted_by_their_fields():
    text = "data = sc.parallelize(a).cache()\nfor i in b:\n    n = data.filter(lambda p: p[0] > i).count()\n"
    capture = _captured(text, [(1.0, 2.0)], ("filter", {"pairs": True}))
    assert 'data.vmap(lambda p: 1 if p["key"] > i else 0).sum()' in port(SourceProgram("job.py", text), capture).text
    named = text.replace("lambda p: p[0] > i", "good")
    assert "its records are pairs; write a lambda" in port(SourceProgram("job.py", named), _captured(
        named, [(1.0, 2.0)], ("filter", {"pairs": True}))).refused[0]


def test_a_map_of_few_records_with_a_comment_behind_it_stays():
    text = _port("""
        data = sc.parallelize(a).cache()
        while t:
            n = (data.map(lambda p: (0, p)).reduceByKey(lambda a, b: a + b)
                 .map(lambda s: s[1] / 2)  # means
                 .collect())
        """).text
    assert ".map(lambda s: s[1] / 2)  # means" in text and "data.vmap" in text


def test_what_is_made_of_cached_data_before_the_loop_is_ported_too():
    text = _port("""
        data = sc.parallelize(a).cache()
        scaled = data.map(lambda x: x * 2)
        for i in b:
            scaled.map(lambda x: x + i).sum()
        """).text
    assert "scaled = data.vmap(" in text and "scaled.vmap(" in text


@pytest.mark.parametrize(("text", "why"), [
    ("data = sc.parallelize(a)\n" + LOOP, "is not cached"),
    ("data = sc.parallelize(a).cache()\nfor i in b:\n    data.map(lambda x: x + i).filter(f).count()\n", "line 3"),
    ("data = sc.parallelize(a).cache()\n" + LOOP + "for i in b:\n    data.flatMap(f).count()\n", "two copies"),
    ("data = sc.parallelize(a).cache()\nfor i in b:\n    data.map(lambda s: s.split()).count()\n", "split"),
    ("data = sc.parallelize(a).cache()\nfor i in b:\n    data.map(lambda p: (0, p)).mapValues(lambda v: v).count()\n",
     "write a map of the pair"),
    ("sc.parallelize(a).cache()\nf(g(sc.parallelize(b).cache()))\n" + LOOP.replace("data", "h()"), ""),
])
def test_where_it_would_have_to_guess_it_stops(text: str, why: str):
    ported = _port(text)
    assert ported.loops == () and ported.text == ported.program.source and ported.diff == ""
    assert any(why in each for each in ported.refused) or not why


def test_stock_kmeans_keeps_every_other_line():
    program = SourceProgram.read(EXAMPLES / "kmeans.py")
    ported = port(program)
    ast.parse(ported.text)
    kept = difflib.SequenceMatcher(None, program.source.splitlines(), ported.text.splitlines(), autojunk=False)
    assert sum(block.size for block in kept.get_matching_blocks()) == len(program.source.splitlines()) - 4
    assert 'data = lines.map(parseVector).cache("GPU")' in ported.text
    assert "newPoints = [(st[0], st[1][0] / st[1][1]) for st in pointStats.collect()]" in ported.text


def _captured(text: str, sample: list, *calls: tuple[str, dict]) -> RunCapture:
    """Return a capture of a program whose calls ran, with a sample of what it caches."""
    program = SourceProgram("job.py", text)
    capture = RunCapture("job.py", [], digest_of(text), sources={"job.py": text})
    known = dict(calls)
    for number, call in enumerate(program.calls):
        one = CapturedCall(number, "job.py", call.line, call.node.end_lineno or 0, call.node.end_col_offset or 0,
                           call.method, is_read=True, times=1, **known.get(call.method, {}))
        if call.method == "cache":
            one.sample = encoded(sample, capture.arrays)
        capture.calls.append(one)
    return capture


KEYED = ("data = sc.parallelize(a).cache()\nfor i in b:\n"
         "    data.map(lambda p: (near(p, centers), p)).reduceByKey(lambda a, b: a + b{}).collect()\n")


@pytest.mark.parametrize(("tail", "wanted"), [("", ", numKeys=len(centers))"), (", 4", ", 4, numKeys=len(centers))"),
                                              (",\n    ", ", numKeys=len(centers),\n    )")])
def test_keys_are_promised_by_a_name_of_the_function(tail: str, wanted: str):
    text = KEYED.format(tail)
    ported = port(SourceProgram("job.py", text), _captured(text, [np.zeros(2)], (
        "reduceByKey", {"keys": [0, 2], "num_keys": ["K", "len(centers)"], "reason": "add"})))
    assert wanted in ported.text


def test_keys_are_promised_by_a_name_of_a_map_further_up():
    text = KEYED.format("").replace(".reduceByKey", ".map(lambda pair: (pair[0], pair[1] * 2)).reduceByKey")
    ported = port(SourceProgram("job.py", text), _captured(text, [np.zeros(2)], (
        "reduceByKey", {"keys": [0, 2], "num_keys": ["K", "len(centers)"], "reason": "add"})))
    assert "numKeys=len(centers)" in ported.text


@pytest.mark.parametrize(("results", "keys"), [
    ([[(1, 2.0), (0, 1.0)], [(2, 1.0)]], [0, 2]), ([[("a", 2.0)]], []), ([[2.0, 3.0]], None), ([{3: 1.0}], [3, 3]),
    ([[]], [])])
def test_keys_are_seen_in_what_an_action_gives_of_them(tmp_path: Path, results: list, keys: list | None):
    (tmp_path / "job.py").write_text("")
    recorder = Recorder(tmp_path / "job.py", [])
    fold, action = (CapturedCall(number, "job.py", 1, 1, number, name, times=1)
                    for number, name in enumerate(("reduceByKey", "collect")))
    action.on = fold.number
    recorder.capture.calls += [fold, action]
    recorder._live[0] = _Live()
    for result in results:
        recorder._note_keys(action, result)
    assert fold.keys == keys


def test_the_reasons_by_which_a_loop_stays_come_before_what_stays_behind_them():
    text = ("data = sc.parallelize(a).cache()\nfor i in b:\n    data.map(lambda x: x).flatMap(f).count()\n"
            "    data.map(lambda x: open(x)).sum()\n")
    refused, = port(SourceProgram("job.py", text)).refused
    assert refused.startswith("line 2: not ported: line 3, .flatMap(f): flatMap is a Spark job")
    assert refused.endswith("; nor are, by reasons of their own, those of line 4")


def test_keys_that_no_name_bounds_are_not_promised():
    text = KEYED.format("")
    ported = port(SourceProgram("job.py", text), _captured(text, [np.zeros(2)], (
        "reduceByKey", {"keys": [0, 2], "num_keys": ["K"]})))
    assert "numKeys" not in ported.text and "data.vmap" in ported.text


@pytest.mark.parametrize(("body", "promised"), [
    ("return near(p, V), p", True), ("V = [1]\n    return near(p, V), p", False), ("return near(p, W), p", False)])
def test_keys_are_promised_by_a_name_that_a_named_function_finds_around_it(body: str, promised: bool):
    text = (f"def step(p):\n    {body}\ndata = sc.parallelize(a).cache()\nfor i in b:\n"
            "    data.map(step).reduceByKey(lambda a, b: a + b).collect()\n")
    ported = port(SourceProgram("job.py", text), _captured(text, [np.zeros(2)], (
        "reduceByKey", {"keys": [0, 2], "num_keys": ["len(V)"], "reason": "add"})))
    assert ("numKeys=len(V)" in ported.text) is promised


def test_records_decide_what_a_function_is_of():
    text = "data = sc.parallelize(a).cache()\nfor i in b:\n    data.map(lambda m: m.sum()).sum()\n"
    whole = port(SourceProgram("job.py", text), _captured(text, [np.zeros((2, 3)), np.zeros((2, 3))]))
    assert 'data.vmap(lambda m: m.sum(), of="record")' in whole.text
    pairs = port(SourceProgram("job.py", text), _captured(text, [("a", 1.0), ("b", 2.0)]))
    assert not pairs.loops and "decide whether the key is to be a field" in pairs.refused[0]


def test_a_recording_of_another_script_is_refused(tmp_path: Path):
    text = KEYED.format("")
    (tmp_path / "job.py").write_text(text + "# changed\n")
    _captured(text, [np.zeros(2)]).write(tmp_path / "c")
    ended = CliRunner().invoke(main, ["port", str(tmp_path / "job.py"), "--capture", str(tmp_path / "c")])
    assert ended.exit_code == UNKNOWN and "record it again" in ended.output


def test_what_was_not_executed_is_not_called_ported(tmp_path: Path):
    (tmp_path / "job.py").write_text("data = sc.parallelize(a).cache()\n" + LOOP)
    ended = CliRunner().invoke(main, ["port", "--write", str(tmp_path / "job.py")])
    assert ended.exit_code == UNKNOWN and "# not executed" in ended.output and "+import vispark" in ended.output
    assert "vmap" not in (tmp_path / "job.py").read_text()


def test_nothing_to_port_is_no(tmp_path: Path):
    ended = CliRunner().invoke(main, ["port", str(EXAMPLES / "pagerank.py")])
    assert ended.exit_code == NO and "# nothing is ported" in ended.output


def test_changes_that_meet_are_refused():
    with pytest.raises(SourceError, match="meet"):
        SourceBytes("abc").edited([Edit(0, 2, "x"), Edit(1, 3, "y")])
    with pytest.raises(SourceError, match="no Python"):
        SourceBytes("a = 1").edited([Edit(2, 3, "= =")])


CACHED_TWICE = """
rows = sc.textFile(path).map(float).cache()
data = rows.mapPartitions(whole){}
for _ in range(9):
    w = data.map(lambda x: x * w).sum()
"""


def test_of_two_caches_the_one_that_the_loop_goes_over_is_on_the_device():
    ported = _port(CACHED_TWICE.format(".cache()"))
    assert ported.loops and "map(float).cache()" in ported.text
    assert 'rows.mapPartitions(whole).cache("GPU")' in ported.text
    refused, = _port(CACHED_TWICE.format("")).refused
    assert "it stays in Spark, and makes what the loop goes over of what is cached at line 2: cache what it" in refused
