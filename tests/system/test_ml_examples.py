"""The programs of ``examples/ml``, one for each family of estimators, each of which checks its own answer."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.optional import needed
from tests.system.topology import Topology
from tests.system.vrdd_tools import EagerPool, host_context
from vispark.ml import loads

pytest.importorskip("pyarrow")
needed("sklearn")

pyplot = needed("matplotlib.pyplot")
pytestmark = pytest.mark.usefixtures("fonts")

#: The programs, and what each says when its answer is right.
SAID = {"classification": "the coefficients are MLlib's", "regression": "the lasso's coefficients are scikit-learn's",
        "clustering": "the groups of K-means are the cultivars", "decomposition": "as scikit-learn's do",
        "recommendation": "for user 7: film", "features": "near to 'cancer'", "similarity": "the distances are NumPy's",
        "tuning": "fits and 18 evaluations took",
        "machines": "the factors are those that the points were made with",
        "consensus": "the consensus is scikit-learn's regression of all tumours"}
PROGRAMS = Path(__file__).resolve().parents[2] / "examples/ml"


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local, fallback="error") as context:
        yield context


def test_each_program_is_run():
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_program(sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                 capsys: pytest.CaptureFixture[str], name: str):
    """It finds the context that is there, as by ``spark-submit``."""
    monkeypatch.chdir(tmp_path)
    # pyspark's own searches leave their threads behind.
    monkeypatch.setattr("pyspark.ml.tuning.ThreadPool", EagerPool)
    try:
        runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    finally:
        pyplot.close("all")
        loads.unload()
    assert SAID[name] in capsys.readouterr().out
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
