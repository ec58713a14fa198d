"""The program of docs/guide/scheduled_gpus.md runs as it stands, on a machine without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.system.topology import jvm_options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "scheduled_gpus.md"


@pytest.mark.timeout(300)
def test_the_program_of_the_page(tmp_path: Path):
    program, = re.findall(r"<!-- program: .* -->\n```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"),
                          re.MULTILINE | re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in {
        "spark.driver.extraJavaOptions": jvm_options(), "spark.executor.extraJavaOptions": jvm_options(),
        "spark.ui.enabled": "false"}.items()))
    with tempfile.TemporaryDirectory(prefix="vt-") as runtime:      # a short path: there is a socket in it
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "VISPARK_RUNTIME_DIR": runtime,
                                    "PYTHONPATH": str(PAGE.parents[2]), "SPARK_LOCAL_IP": "127.0.0.1",
                                    "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(tmp_path)}
        ended = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, timeout=280,
                               capture_output=True, text=True, check=False)
        status = subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], env=environment, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.splitlines()[-1] == "28000.0"
    assert status.returncode == 0
