"""The snippets of README.md and docs/ that are programs without output run, each behind what its page takes as given.

Those with output, marked as ``pycon``, are run by ``test_doctests.py``; the program of scheduled GPUs by
``test_gpu_guide.py``, which takes a cluster of its own.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.doctests import ROOT
from tests.system.topology import Topology
from tests.system.vrdd_tools import host_context

_BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ELSEWHERE = {"docs/guide/scheduled_gpus.md"}

_ROWS = """
from pathlib import Path
import numpy as np
from operator import add
import vispark
w = np.ones(2)
def gradient(p, w):
    return (p[1:] @ w - p[0]) * p[1:]
rows = sc.parallelize([np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 0.25])] * 4, 2).cache("GPU")
"""
_HEAT = """
import numpy as np
from vispark import Grid, stencil
nz, ny, nx, steps = 8, 8, 8, 2
initial = np.ones((nz, ny, nx))
"""

#: Of each page: what comes before its snippets, what is written otherwise in them (FOLDER is the
#: test's), and what is so after them.
PAGES: dict[str, tuple[str, dict[str, str], str]] = {
    "README.md": ("""
import numpy as np
K, convergeDist = 2, 0.1
lines = sc.parallelize(["0 0", "0 1", "9 9", "9 8"], 2)
def parseVector(line):
    return np.array([float(x) for x in line.split(" ")])
def closestPoint(p, centers):
    bestIndex, closest = 0, float("+inf")
    for i in range(len(centers)):
        tempDist = np.sum((p - centers[i]) ** 2)
        if tempDist < closest:
            closest, bestIndex = tempDist, i
    return bestIndex
""", {"takeSample(False, K, 1)": "take(4)[1:3]"}, "sorted(map(tuple, kPoints)) == [(0.0, 0.5), (9.0, 8.5)]"),
    "docs/index.md": (_ROWS + """
def parse(line):
    return np.array([float(x) for x in line.split(",")])
Path("points.txt").write_text("1,2,3\\n-1,0.5,0.25\\n")
""", {"w -= ": "w -= 1e-3 * ", "points.txt": "FOLDER/points.txt"}, "w.shape == (2,) and not np.allclose(w, 1)"),
    "docs/getting_started/install.md": ("", {}, "sc.parallelize([1.0], 1).cache('GPU').collect() == [1.0]"),
    "docs/getting_started/ten_minutes.md": ("", {}, "IN and OUT and Grid and Kernels and Rows and read_text"),
    "docs/getting_started/porting.md": (_ROWS + """
blocks = rows.glom().map(np.array)
""", {}, "np.allclose(total, gradients.sum())"),
    "docs/guide/grids.md": (_HEAT, {"(4, 4, 4)": "(2, 2, 2)"}, "np.allclose(result, 1)"),
    "docs/guide/hdfs.md": (_HEAT + """
import os
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import vispark
for folder in ("flow", "points", "table"):
    os.makedirs(folder)
np.save("flow/u.npy", initial)
vispark.Grid.save(Grid((8, 8, 8), splits=(4, 4, 4)).scatter(sc, initial), os.path.abspath("flow/parts"), per_block=True)
Path("points/part-0").write_text("0 1 2\\n3 4 5\\n")
pq.write_table(pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]}), "table/part.parquet")
""", {"hdfs://namenode:8020": "FOLDER", "(2000, 1000, 1000)": "(8, 8, 8)"},
                           "points.count() == table.count() == 2 and len(os.listdir('flow/after')) >= 64"),
    "docs/guide/interactive.md": (_HEAT + """
@stencil
def heat(u, k):
    return u[0, 0] + k * (u[1, 0] + u[-1, 0] + u[0, 1] + u[0, -1] - 4 * u[0, 0])
blocks = Grid((8, 8), splits=(2, 1), halo=1).scatter(sc, np.ones((8, 8))).cache("GPU")
""", {"steps=20000": "steps=20"}, "blocks.count() == 2"),
    "docs/guide/matrix_products.md": (_ROWS + """
w1, w2 = np.ones((2, 3)), np.ones((3, 1))
given, w = w, np.ones(3)
""", {}, "rows.vmap(gradient, w1, w2).reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))[0].shape == (2, 3)"),
    "docs/guide/monitoring.md": ("import vispark", {}, "'127.0.0.1' in shown.address"),
    "docs/guide/plans.md": (_ROWS + """
Path("points.txt").write_text("1 2 3\\n-1 0.5 0.25\\n")
""", {"range(100)": "range(3)", "points.txt": "FOLDER/points.txt"},
                            "'kernel' in found.table() and Path('trace.json').stat().st_size"),
    "docs/guide/translator.md": (_ROWS + "from numpy import dot, exp", {},
                                 "rows.vmap(gradient, w).reduce(add).shape == (2,)"),
    "docs/guide/udfs.md": ("""
from pyspark.sql import SparkSession
spark = SparkSession(sc)
""", {}, "df.select(logistic('x', 'r')).count() == 3 and spark.sql('select logistic(x, r) from points').count() == 3"),
    "docs/reference/errors.md": ("import vispark\nrdd = sc.parallelize([1.0, object()], 1)",
                                 {"print(": "caught = error\n    print("}, "'object' in str(caught)"),
}


def _programs(page: Path) -> list[str]:
    """Return the snippets of a page: programs, and the new side of a diff of a program."""
    programs = []
    for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            programs.append(text)
        elif page.name == "README.md":
            programs.append("".join(line[1:] for line in text.splitlines(keepends=True) if not line.startswith("-")))
    return programs


def test_each_page_with_a_program_is_run():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert {str(page.relative_to(ROOT)) for page in pages if _programs(page)} - _ELSEWHERE == set(PAGES)


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.mark.parametrize("page", PAGES)
def test_programs(page: str, sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before, otherwise, after = PAGES[page]
    program = "\n".join(_programs(ROOT / page))
    for written, instead in otherwise.items():
        assert written in program
        program = program.replace(written, instead.replace("FOLDER", str(tmp_path)))
    (tmp_path / "program.py").write_text(f"{before}\n{program}\nassert {after}\n")
    runpy.run_path(str(tmp_path / "program.py"), {"sc": sc}, "__main__")
