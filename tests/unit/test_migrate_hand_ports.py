"""``vispark port`` makes the ports that are written by hand in the README and the examples."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from vispark.migrate.capture.run_capture import CapturedCall, RunCapture, digest_of, encoded
from vispark.migrate.port.ported_program import PortedProgram, port
from vispark.migrate.source.program import SourceProgram

ROOT = Path(__file__).parents[2]
ROWS = np.random.default_rng(0).normal(size=(6, 4))


def _functions(file: str) -> dict[str, str]:
    tree = ast.parse((ROOT / "examples" / file).read_text(encoding="utf-8"))
    return {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}


def _ported(text: str, records: list[Any], read: dict[str, dict[str, Any]]) -> PortedProgram:
    """Return the port of a program by a recording whose operations have what is given for them by their names."""
    program, arrays = SourceProgram("job.py", text), dict[str, np.ndarray]()
    calls = [CapturedCall(number, "job.py", call.line, call.node.end_lineno or 0, call.node.end_col_offset or 0,
                          call.method, times=3, **read.get(call.method, {})) for number, call in
             enumerate(program.calls)]
    for call in calls:
        if call.method == "cache":
            call.sample = encoded(records, arrays)
    ported = port(program, RunCapture("job.py", [], digest_of(text), calls=calls, arrays=arrays))
    assert ported.refused == ()
    return ported


def _definition(text: str, name: str) -> str:
    return next(ast.unparse(node) for node in ast.parse(text).body
                if isinstance(node, ast.FunctionDef) and node.name == name)


def test_k_means_of_the_examples():
    hand = _functions("kmeans.py")
    text = f"{hand['closestPoint']}\n\n{hand['plain']}\n\nplain(sc.parallelize(rows), 3, 0.1)\n"
    ported = _ported(text, list(ROWS), {
        "map": {"is_read": True}, "reduceByKey": {"is_read": True, "reason": "(add, add)", "keys": [0, 2],
                                                  "num_keys": ["K", "len(kPoints)"]}})
    definition = _definition(ported.text, "plain").replace("len(kPoints)", "K")
    # That the function before the fold gives keys below len(kPoints) is known, where K is a name like any other.
    assert "numKeys=len(kPoints)" in ported.text
    assert definition == hand["ported"].replace("def ported", "def plain")


def test_k_means_of_the_readme():
    listing = re.search(r"```diff\n(\+import vispark\n.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert listing is not None
    before, after = ("".join(line[1:] + "\n" for line in listing.group(1).splitlines() if line[0] in keep)
                     for keep in (" -", " +"))
    text = f"{_functions('kmeans.py')['closestPoint']}\nlines = sc.textFile(path)\n{before}"
    ported = _ported(text, list(ROWS), {
        "map": {"is_read": True}, "reduceByKey": {"is_read": True, "reason": "(add, add)", "keys": [0, 2],
                                                  "num_keys": ["K", "len(kPoints)"]}})
    wanted = ast.unparse(ast.parse(after)).replace("numKeys=K", "numKeys=len(kPoints)").splitlines()
    assert [line for line in wanted if line not in ast.unparse(ast.parse(ported.text))] == []


def test_logistic_regression_of_the_examples():
    hand = _functions("logistic_regression.py")
    text = "\n\n".join([hand["plain_gradient"], hand["add"], hand["plain"],
                        "list(plain(sc.parallelize(blocks), w, 3, 0.1))\n"])
    ported = _ported(text, [ROWS, ROWS], {"map": {"is_read": False, "reason": "a block", "ranks": {"w": 1}},
                                          "reduce": {"is_read": True, "reason": "add"}})
    assert ("points.vmap(lambda m, w=w: plain_gradient_row(m, w)).vreduce(lambda a, b: a + b).reduce(add)"
            in _definition(ported.text, "plain"))
    names: dict[str, Any] = {"np": np, "exp": np.exp, "dot": np.dot}
    for source in (hand["gradient"], hand["plain_gradient"], _definition(ported.text, "plain_gradient_row")):
        exec(source, names)
    w = np.array([0.3, -0.2, 0.1])
    sums = [functools.reduce(np.add, [names[name](row, w) for row in ROWS])
            for name in ("gradient", "plain_gradient_row")]
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-14)
    np.testing.assert_allclose(names["plain_gradient"](ROWS, w), sums[1], rtol=1e-14)
