"""A run of ``vispark tune`` under a setting of all knobs, in a process and with a Spark of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vispark.migrate.commands.tune_command import MeasuredProgram
from vispark.migrate.tune.search import Setting, SourceCall

pytestmark = pytest.mark.timeout(300)

PROGRAM = '''\
import numpy as np
from pyspark import SparkConf, SparkContext
import vispark

sc = SparkContext(conf=SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false"))
data = sc.parallelize(range(400), 8).map(lambda i: np.array([i % 7, i % 5, 1.0]))
held = data.cache("GPU")
w = np.zeros(3)
for _ in range(1000):
    w = w - 1e-6 * held.vmap(lambda x: x * (np.sum(x * w) - x[2])).reduce(lambda a, b: a + b)
    assert held.first().dtype == np.float32
'''


def test_a_run_has_all_knobs_and_ends_after_its_passes(tmp_path_factory: pytest.TempPathFactory,
                                                       monkeypatch: pytest.MonkeyPatch):
    tmp_path = tmp_path_factory.mktemp("tune")      # the path of a socket is short
    monkeypatch.setenv("VISPARK_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "job.py").write_text(PROGRAM)
    setting = Setting(3, blocks=True, float32=True).with_conf(spark__master="local[1]",
                                                              spark__vispark__snapshotShare="0")
    try:
        run = MeasuredProgram(tmp_path / "job.py", (), tmp_path, 3, "host").run(setting)
    finally:
        subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], capture_output=True, timeout=60, check=False)
    assert run.failed == "" and run.load > 0 and len(run.passes) == 2
    facts = run.facts
    assert facts.master == "local[1]" and facts.conf["spark.vispark.snapshotShare"] == "0" and facts.is_cut
    assert facts.sources == (SourceCall(6, "parallelize", 3),)
    assert facts.cached == ((7, "array", True, False),)
    assert "vmap" in " ".join(facts.operations)
