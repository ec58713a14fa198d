"""``vispark qualify SCRIPT``: operations and loops by the syntax tree, and the translator's verdicts."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from vispark.migrate.cli import main
from vispark.migrate.errors import NO, UNKNOWN, YES, SourceError
from vispark.migrate.qualify.from_source import qualify_source
from vispark.migrate.rules.advice import Qualification
from vispark.migrate.source.program import SourceProgram

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python"


def _of(text: str) -> Qualification:
    return qualify_source(SourceProgram("job.py", textwrap.dedent(text)))


def _verdicts(answer: Qualification, loop: int = 0) -> dict[tuple[int, str], str]:
    return {(each.line, each.call.partition("(")[0]): each.verdict for each in answer.loops[loop].advice}


@pytest.mark.parametrize(("between", "verdict"), [
    ("scale = scale + 1", "by hand"), ("w[i] += 0.5", "by hand"), ("a, w = w, 3", "by hand"), ("w.fill(i)", "by hand"),
    ("for scale in range(3): pass", "by hand"), ("other = scale + 1", "vmap"), ("print(w)", "vmap"), ("x = 3", "vmap")])
def test_a_name_that_changes_before_the_action_is_said(between: str, verdict: str):
    answer = _of(f"""
        scale, w = 2.0, [1.0]
        def shifted(x): return x * scale + w[0]
        data = sc.textFile(path).map(float).cache()
        for i in range(3):
            scores = data.map(lambda x: shifted(x))
            {between}
            total = scores.reduce(lambda a, b: a + b)
            scale = total
        """)
    advice = {each.line: each for each in answer.loops[0].advice}
    assert advice[6].verdict == verdict
    assert verdict == "vmap" or "line 7, before line 8 runs it" in advice[6].detail


def test_what_a_shuffle_runs_may_change_behind_it():
    answer = _of("""
        w = 1.0
        data = sc.textFile(path).map(float).cache()
        for i in range(3):
            sums = data.map(lambda x: (int(x) % 3, x * w)).reduceByKey(lambda a, b: a + b)
            w = w + 1
            total = sums.collect()
        """)
    assert _verdicts(answer)[(5, ".map")] == "vmap"


@pytest.mark.parametrize(("name", "wanted"), [
    ("kmeans", {(62, ".map"): "stays", (63, ".map"): "stays", (63, ".cache"): "cache", (71, ".map"): "vmap",
                (73, ".reduceByKey"): "fold", (75, ".map"): "driver", (76, ".collect"): "as it is"}),
    ("logistic_regression", {(64, ".map"): "stays", (65, ".mapPartitions"): "stays", (65, ".cache"): "cache",
                             (85, ".map"): "rows of blocks", (85, ".reduce"): "fold"}),
    ("pagerank", {(67, ".map"): "stays", (70, ".map"): "stays", (70, ".distinct"): "stays", (70, ".cache"): "stays",
                  (70, ".groupByKey"): "stays", (78, ".join"): "stays", (78, ".flatMap"): "stays",
                  (83, ".reduceByKey"): "stays", (83, ".mapValues"): "stays"}),
])
def test_programs_that_come_with_spark(name: str, wanted: dict):
    answer = qualify_source(SourceProgram.read(EXAMPLES / f"{name}.py"))
    assert _verdicts(answer) == wanted
    assert answer.qualifies == (name != "pagerank")


@pytest.mark.parametrize(("name", "status"), [("kmeans", YES), ("als", NO), ("pi", NO), ("transitive_closure", NO),
                                              ("sort", NO)])
def test_exit_statuses(name: str, status: int):
    ended = CliRunner().invoke(main, ["qualify", "--json", str(EXAMPLES / f"{name}.py")])
    assert ended.exit_code == status, ended.output
    document = json.loads(ended.stdout)
    assert document["qualifies"] == (status == YES) and document["evidence"] == "source"


def test_a_reason_is_the_translators():
    answer = _of("""
        import random
        data = sc.textFile("x").map(float).cache()
        while True:
            data.map(lambda x: x * random.random()).sum()
        """)
    advice = {each.call: each for each in answer.loops[0].advice}
    drawn = advice[".map(lambda x: x * random.random())"]
    assert drawn.verdict == "by hand" and "draws no random numbers" in drawn.detail
    assert not answer.qualifies


def test_what_only_a_run_has_stands_for_any_value():
    answer = _of("""
        import numpy as np
        Row = np.ndarray
        weights = np.zeros(int(open("d").read()))
        def scaled(x: Row) -> Row: return x * weights
        data = sc.textFile(path).map(float).cache()
        for i in b:
            weights = weights + data.map(scaled).sum()
        """)
    assert _verdicts(answer)[(8, ".map")] == "vmap" and not answer.notes


def test_what_a_name_stands_for_is_not_computed(tmp_path: Path):
    path = tmp_path / "job.py"
    path.write_text("import sys\nfirst = sys.argv[9]\nsame = spark.sparkContext\nd = sc.parallelize(a).cache()\n"
                    "for i in b:\n    d.map(lambda x: x).sum()\n")
    assert "could not be executed" not in CliRunner().invoke(main, ["qualify", str(path)]).output


def test_a_function_that_only_a_run_has_is_not_known(tmp_path: Path):
    path = tmp_path / "job.py"
    path.write_text("d = sc.parallelize(a).cache()\nfor i in b:\n    d.map(made(i)).sum()\n")
    for command in ("qualify", "port"):
        ended = CliRunner().invoke(main, [command, "--no-history", str(path)])
        assert ended.exit_code == UNKNOWN and "a recorded run says what its function is" in ended.output


@pytest.mark.parametrize("function", ["lambda x: missing.f(x)", "other", "by_name"])
def test_what_an_import_that_fails_would_give_is_not_known(tmp_path: Path, function: str):
    path = tmp_path / "job.py"
    path.write_text("import no_such_module as missing\nfrom no_such import by_name\ndef other(x): return missing.f(x)\n"
                    f"d = sc.parallelize(a).cache()\nfor i in b:\n    d.map({function}).sum()\n")
    ended = CliRunner().invoke(main, ["qualify", "--no-history", str(path)])
    assert ended.exit_code == UNKNOWN and "a recorded run says what its function is" in ended.output
    assert "line 1 could not be executed: ModuleNotFoundError" in ended.output


def test_a_reason_in_another_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "helped_by.py").write_text("def f(x):\n    return open(x)\n")
    path = tmp_path / "job.py"
    path.write_text("from helped_by import f\nd = sc.parallelize(a).cache()\nfor i in b:\n    d.map(f).sum()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "(helped_by.py:2)" in CliRunner().invoke(main, ["qualify", "--no-history", str(path)]).output


def test_other_folds_by_key_are_said_to_be_written_by_reduce_by_key():
    answer = _of("""
        data = sc.textFile(path).map(float).cache()
        for i in b:
            pairs = data.map(lambda x: (int(x) % 3, x))
            sums = pairs.aggregateByKey(0.0, lambda s, x: s + x, lambda a, b: a + b).collect()
        """)
    advice = {each.call.partition("(")[0]: each for each in answer.loops[0].advice}
    assert advice[".aggregateByKey"].verdict == "by hand" and "reduceByKey" in advice[".aggregateByKey"].detail


def test_unusual_layout_is_found_at_its_place():
    program = SourceProgram("job.py", "d = sc.parallelize(é)\\\n    .map(\n  f\n )  .cache(); n = 0\n"
                                      "while n: a = d . map (f) . sum ( ) ; n = 1\n")
    calls = [(call.method, call.line, call.column) for call in program.calls]
    lines = program.source.splitlines()
    assert [method for method, _, _ in calls] == ["parallelize", "map", "cache", "map", "sum"]
    assert all(lines[line - 1].encode()[column - 1:].startswith(method.encode()) for method, line, column in calls)


def test_methods_of_other_things_are_none():
    program = SourceProgram("job.py", "a = [1].count(1)\nb = ','.join(x)\nc = np.sum(y)\nd = df.filter(e).count()\n"
                                      "f = spark.read.parquet('p').filter(g).collect()\nlist(map(h, i))\n")
    assert program.calls == ()


def test_helpers_and_parameters_are_followed():
    answer = _of("""
        def load(context, path):
            return context.textFile(path).map(float)

        def step(points, w):
            return points.map(lambda x: x * w).reduce(lambda a, b: a + b)

        def fit(sc, path):
            data = load(sc, path).cache()
            for _ in range(10):
                w = step(data, w)
        """)
    assert _verdicts(answer)[6, ".map"] == "vmap" and _verdicts(answer)[6, ".reduce"] == "fold"
    assert _verdicts(answer)[9, ".cache"] == "cache"


def test_an_assignment_that_may_not_have_run_is_not_the_only_one():
    program = SourceProgram("job.py", "a = sc.parallelize(x)\nif y:\n    a = a.map(f)\na.count()\n")
    name = program.calls[-1].attribute.value
    assert [program.text_of(each) for each in program.values_of(name)] == ["a.map(f)", "sc.parallelize(x)"]


def test_workers_find_the_least_records():
    answer = _of("""
            data = sc.parallelize(x).cache()
            for q in queries:
                data.map(lambda x: abs(x - q)).takeOrdered(3)
        """)
    assert answer.qualifies and [each.verdict for each in answer.loops[0].advice][-2:] == ["vmap", "as it is"]


def test_a_chain_that_leaves_the_device_gains_nothing():
    answer = _of("""
        data = sc.parallelize(x).cache()
        for _ in range(3):
            data.map(lambda x: x + 1).flatMap(lambda x: [x, x]).collect()
        """)
    assert not answer.qualifies
    assert any("leave it at line 4, .flatMap" in each.detail for each in answer.loops[0].advice)


def test_what_is_not_cached_is_warned_of():
    answer = _of("data = sc.parallelize(x)\nfor _ in y:\n    data.map(lambda x: x + 1).sum()\n")
    assert any("is not cached" in each for each in answer.loops[0].warnings)


def test_only_definitions_are_executed(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text(f"import os\nK = 3\nopen({str(tmp_path / 'written')!r}, 'w')\nif len(os.sys.argv) > 99:\n"
                      "    raise SystemExit(1)\nimport no_such_module_of_mine\n"
                      "d = sc.parallelize(a).cache()\nfor i in b:\n    d.map(lambda x: x * K).sum()\n")
    ended = CliRunner().invoke(main, ["qualify", str(script)])
    assert ended.exit_code == YES and not (tmp_path / "written").exists()
    assert "line 6 could not be executed: ModuleNotFoundError" in ended.output


def test_without_imports_the_translator_is_not_asked(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("d = sc.parallelize(a).cache()\nfor i in b:\n    d.map(lambda x: x).sum()\n")
    ended = CliRunner().invoke(main, ["qualify", "--no-import", str(script)])
    assert "the translator was not asked" in ended.output


@pytest.mark.parametrize(("name", "content", "wanted"), [
    ("job.py", b"for x in\n", "line 1 is no Python"),
    ("job.py", b"\xff\xfe\x00", "is not UTF-8"),
    ("job.py", b"a\0b", "is no Python"),
])
def test_what_is_no_script_is_one_line(tmp_path: Path, name: str, content: bytes, wanted: str):
    path = tmp_path / name
    path.write_bytes(content)
    ended = CliRunner().invoke(main, ["qualify", str(path)])
    assert ended.exit_code == UNKNOWN and wanted in ended.output and ended.output.count("\n") == 1


def test_dataframes_alone_do_not_qualify(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("df = spark.read.parquet('x')\nfor i in range(3):\n    df = df.filter('a > 1').cache()\n")
    ended = CliRunner().invoke(main, ["qualify", str(script)])
    assert ended.exit_code == NO and "vispark.from_dataframe" in ended.output
    script.write_text("print(1)\n")
    assert "from_dataframe" not in CliRunner().invoke(main, ["qualify", str(script)]).output


def test_source_errors_name_the_line():
    with pytest.raises(SourceError, match="line 2"):
        SourceProgram("job.py", "x = 1\ny = = 2\n")


def test_a_parameter_that_is_assigned_is_what_callers_give_until_then():
    text = ("def fit(data, w):\n    data = data.cache()\n    for _ in range(9):\n"
            "        w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)\n    return w\n\n\n"
            "fit(sc.parallelize(a), 1.0)\n")
    loop, = qualify_source(SourceProgram("job.py", text)).loops
    assert [each.verdict for each in loop.advice] == ["cache", "vmap", "fold", "stays"]


def test_a_text_that_a_path_reads_is_no_rdd():
    text = "for path in paths:\n    n = path.read_text().count()\n    m = vispark.read_text(sc, path).count()\n"
    assert [(call.method, call.line) for call in SourceProgram("job.py", text).calls] == [
        ("read_text", 3), ("count", 3)]
