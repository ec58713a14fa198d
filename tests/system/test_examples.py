"""The examples run as a user runs them; each checks its own answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.optional import needed
from tests.system import topology
from tests.system.topology import TRANSPORT, jvm_options
from tests.system.worker_tools import stop_worker

needed("sklearn")
needed("matplotlib")

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
#: What starts a JVM, as by `python`; the others are run in one that is there, as by `spark-submit`.
BY_PYTHON = "logistic_regression.py"
#: What `bin/demo` runs, README's first command.
BY_DEMO = "logistic_regression_lowlevel.py"


def test_every_example_is_run():
    assert set(RUNS) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.fixture(scope="module", autouse=True)
def jvm() -> None:
    """Start the tests' JVM before the first test."""
    topology.start_jvm()


def installed(folder: Path) -> Path:
    """Make this environment once more, as `bin/environment examples` leaves one."""
    folder.mkdir()
    for path in Path(sys.prefix).iterdir():
        if not path.name.startswith("vispark-"):
            (folder / path.name).symlink_to(path)
    settings = subprocess.run(["cksum"], input=(EXAMPLES.parent / "setup.cfg").read_bytes(), capture_output=True,
                              check=True).stdout.decode().strip()
    extras = "examples,cuda" if Path("/dev/nvidia0").exists() and shutil.which("nvcc") else "examples"
    (folder / f"vispark-{extras}").write_text(f"{settings} pyspark\n")
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_example(name: str, tmp_path: Path):
    arguments, output = RUNS[name]
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false",
                "spark.vispark.transport": os.environ.get(TRANSPORT, "auto")}
    with tempfile.TemporaryDirectory(prefix="vt-") as runtime:      # a short path: there is a socket in it
        started = by_python(settings) if name == BY_PYTHON else by_spark_submit(settings, runtime)
        with started as variables:
            environment = os.environ | {"VISPARK_RUNTIME_DIR": runtime} | variables
            command = [sys.executable, str(EXAMPLES / name)]
            if name == BY_DEMO and sys.prefix != sys.base_prefix:
                command = [str(EXAMPLES.parent / "bin/demo")]
                environment |= {"VISPARK_VENV": str(installed(tmp_path / "venv")), "VISPARK_PYSPARK": ""}
            result = subprocess.run([*command, *arguments], cwd=tmp_path, env=environment, timeout=110,
                                    capture_output=True, text=True, check=False)
        stop_worker(Path(runtime))
    assert result.returncode == 0, result.stderr[-4000:]
    assert output in result.stdout


@contextlib.contextmanager
def by_python(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the variables with which a program starts a JVM that has these settings."""
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    yield {"PYSPARK_SUBMIT_ARGS": f'{options} --driver-java-options "{jvm_options()}" pyspark-shell'}


@contextlib.contextmanager
def by_spark_submit(settings: Mapping[str, str], runtime: str) -> Iterator[dict[str, str]]:
    """Yield the variables with which a program uses the tests' JVM, which has these settings meanwhile."""
    gateway = SparkContext._gateway
    properties = gateway.jvm.java.lang.System
    settings = settings | {"spark.app.name": "example", "spark.executorEnv.VISPARK_RUNTIME_DIR": runtime}
    for name, value in settings.items():
        properties.setProperty(name, value)
    parameters = gateway.gateway_parameters
    try:
        yield {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    finally:
        # A program leaves its context to the JVM's end.
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate().stop()
        for name in settings:
            properties.clearProperty(name)
