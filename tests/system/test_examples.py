"""The examples run as a user runs them; each checks its own answer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.system.topology import TRANSPORT, jvm_options

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: What each is run with, and what it says when its answer is right.
RUNS = {
    "logistic_regression_lowlevel.py": (["--iterations", "4"], "Where the data lives"),
    "logistic_regression.py": (["--iterations", "4"], "the two agree"),
    "kmeans.py": (["--converge-dist", "300"], "the two agree"),
    "heat.py": (["--cells", "31", "--animation", "heat.gif"], "the error falls with the spacing to the power of 2.0"),
    "navier_stokes.py": (["--cells", "32"], "of Ghia, Ghia and Shin"),
    "shared_memory_kernel.py": ([], "matrices transposed"),
}


def test_every_example_is_run():
    assert set(RUNS) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", RUNS)
def test_example(name: str, tmp_path: Path):
    arguments, said = RUNS[name]
    with tempfile.TemporaryDirectory(prefix="vt-") as runtime:      # a short path: there is a socket in it
        environment = os.environ | {"VISPARK_RUNTIME_DIR": runtime, "PYSPARK_SUBMIT_ARGS":
                                    "--master local[2] --conf spark.ui.enabled=false "
                                    f"--conf spark.vispark.transport={os.environ.get(TRANSPORT, 'auto')} "
                                    f'--driver-java-options "{jvm_options()}" pyspark-shell'}
        result = subprocess.run([sys.executable, EXAMPLES / name, *arguments], cwd=tmp_path, env=environment,
                                timeout=110, capture_output=True, text=True, check=False)
        subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], env=environment, timeout=30, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    assert said in result.stdout
