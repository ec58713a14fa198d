"""Scripts whose functions are in modules beside them: looked at, and ported, as one program of several files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.port.ported_program import port
from vispark.migrate.qualify.from_capture import qualify_capture
from vispark.migrate.source.edits import Edit
from vispark.migrate.source.joined_modules import JoinedProgram, with_modules
from vispark.migrate.source.program import SourceProgram

SCRIPT = '''\
"""A job."""
import sys
from steps import gradient as step
import blocks

data = sc.textFile(sys.argv[1]).map(float).cache()
w = 0.5
for _ in range(9):
    w -= step(data, w)
'''
STEPS = '''\
# Größen
def gradient(points, w):
    return points.map(lambda x: x * w).reduce(lambda a, b: a + b)
'''
BLOCKS = "def grad(m, w):\n    return m.T @ (m @ w)\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "blocks.py").write_text(BLOCKS)
    (tmp_path / "job.py").write_text(SCRIPT)
    return tmp_path / "job.py"


def _capture(script: Path) -> RunCapture:
    """Return a recording in which all functions are read."""
    calls = []
    for path in (script, script.with_name("steps.py")):
        program = SourceProgram.read(path)
        for call in program.calls:
            calls.append(CapturedCall(len(calls), str(path), call.line, call.node.end_lineno, call.node.end_col_offset,
                                      call.method, times=9, is_read=path != script or None,
                                      reason="add" if call.method == "reduce" else ""))
    sources = {str(path): path.read_text() for path in script.parent.glob("*.py")}
    return RunCapture(str(script), [], digest_of(SCRIPT), calls=calls, sources=sources)


def test_a_loop_is_looked_at_with_the_functions_that_it_calls(script: Path):
    capture = _capture(script)
    # Of a file that is looked at alone, what a parameter is is not known, so its map is none of an RDD.
    steps = script.with_name("steps.py")
    capture.calls += [CapturedCall(9, str(steps), 3, 3, 38, "map", times=9, is_read=True),
                      CapturedCall(10, str(steps), 3, 3, 65, "reduce", times=9, is_read=True, reason="add")]
    loop, = qualify_capture(capture).loops
    verdicts = {each.place: each.verdict for each in loop.advice}
    assert (Path(loop.file).name, loop.line) == ("job.py", 8)
    assert verdicts == {"6": "cache", "steps.py:3": "fold"}
    ported = port(with_modules(SourceProgram.read(script)), capture)
    assert ported.loops == (8,) and list(ported.modules) == [str(steps)]
    assert ported.modules[str(steps)] == STEPS.replace("points.map", "points.vmap")
    assert 'cache("GPU")' in ported.text and "import blocks\nimport vispark\n" in ported.text
    assert [line for line in ported.diff.splitlines() if line.startswith("---")] == [f"--- {script}", f"--- {steps}"]
    (script.parent / "out").mkdir()
    ported.write(script.parent / "out" / "port.py")
    assert (script.parent / "out" / "steps.py").read_text() == ported.modules[str(steps)]
    assert steps.read_text() == STEPS


def test_functions_of_blocks_in_a_module_get_their_row_functions_there(script: Path):
    text = SCRIPT.replace("from steps import gradient as step\nimport blocks", "from blocks import grad").replace(
        "map(float)", "mapPartitions(read)").replace("step(data, w)", "data.map(lambda m: grad(m, w)).reduce(add)")
    script.write_text(text)
    program = with_modules(SourceProgram.read(script))
    capture = RunCapture(str(script), [], digest_of(text), sources={
        str(script): text, str(script.with_name("blocks.py")): BLOCKS})
    for number, call in enumerate(SourceProgram.read(script).calls):
        capture.calls.append(CapturedCall(number, str(script), call.line, call.node.end_lineno,
                                          call.node.end_col_offset, call.method, times=9, is_read=True,
                                          reason="add", ranks={"w": 1}))
    cached = next(each for each in capture.calls if each.method == "cache")
    cached.sample = encoded([np.ones((3, 2))], capture.arrays)
    ported = port(program, capture)
    assert ported.refused == ()
    assert "from blocks import grad\nimport vispark\nfrom blocks import grad_row\n" in ported.text
    assert "vmap(lambda m: grad_row(m, w)).vreduce(" in ported.text
    assert "def grad_row(m, w):" in ported.modules[str(script.with_name("blocks.py"))]


def test_functions_of_one_name_are_not_mixed_up(script: Path):
    script.with_name("blocks.py").write_text("def gradient(m):\n    return m\n")
    assert len(with_modules(SourceProgram.read(script)).parts) == 1


def test_edits_go_to_their_files():
    script, module = SourceProgram("job.py", "import a\nx = 1"), SourceProgram("a.py", "é = 2\ny = 3")
    program = JoinedProgram(script, [module])
    assert [program.located(line) for line in (1, 2, 3, 4)] == [("a.py", 1), ("a.py", 2), ("job.py", 1), ("job.py", 2)]
    end = len(program.source.encode())
    assert program.edited([Edit(0, 2, "é2"), Edit(end, end, "0")]) == {"a.py": "é2 = 2\ny = 3\n",
                                                                      "job.py": "import a\nx = 10"}
