"""Modules that an import of vispark brings with it: every Python worker of Spark's pays for these."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vispark


def _imported(statement: str) -> set[str]:
    """Return the modules that a new process has imported for a statement, beyond PySpark's worker."""
    program = (f"import sys, pyspark.worker, numpy\nbefore = set(sys.modules)\n{statement}\n"
               "print(*sorted(set(sys.modules) - before))")
    return set(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True,
                              timeout=60).stdout.split())


def test_the_package_alone_is_light():
    modules = _imported("import vispark")
    assert len(modules) <= 15, sorted(modules)


def test_a_task_that_takes_a_result_imports_the_executors_side_only():
    modules = _imported("import vispark.runtime.executor.tasks")
    ours = {name for name in modules if name.split(".")[0] in ("vispark", "gpu_worker")}
    assert len(ours) <= 132, sorted(ours)
    unwanted = {"asyncio", "rich", "pyarrow", "fsspec", "vispark.api.vrdd", "vispark.runtime.driver.session",
                "vispark.translate.fusion", "vispark.translate.frontend.reader", "vispark.translate.stencils",
                "vispark.translate.nearest"}
    assert not unwanted & modules


def test_a_programs_random_numbers_are_its_own():
    program = "import random, pyspark.ml\nrandom.seed(1)\nbefore = random.getstate()\n" \
              "import vispark.ml.installation\nassert random.getstate() == before"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_daemon_imports_what_it_runs_and_no_other_command():
    program = "import sys, gpu_worker.cli\nbefore = set(sys.modules)\n" \
              "import gpu_worker.commands.start\nprint(*sorted(before), '|', *sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    group, all_of_it = (set(part.split()) for part in ended.stdout.split("|"))
    assert {name for name in group if name.startswith("gpu_worker.")} <= {
        "gpu_worker.cli", "gpu_worker.commands", "gpu_worker.commands.options", "gpu_worker.commands.deployment",
        "gpu_worker.commands.deployment.lazy_group", "gpu_worker.protocol", "gpu_worker.protocol.errors",
        "gpu_worker.system", "gpu_worker.system.paths"}
    unwanted = {"asyncio", "gpu_worker.commands.deployment.commands", "gpu_worker.device", "gpu_worker.execution",
                "gpu_worker.commands.monitor", "gpu_worker.system.doctor", "gpu_worker.commands.web", "numpy",
                "pyarrow", "pyspark", "rich", "starlette", "uvicorn", "vispark"}
    assert not unwanted & all_of_it


@pytest.mark.slow
def test_a_task_that_relays_a_plan_imports_neither_operations_nor_the_translator():
    modules = _imported("import vispark.runtime.executor.relay_tasks")
    ours = {name for name in modules if name.split(".")[0] in ("vispark", "gpu_worker")}
    assert len(ours) <= 73, sorted(ours)
    unwanted = {"vispark.plan.ops", "vispark.plan.fold", "vispark.translate.frontend", "vispark.translate.codegen",
                "vispark.runtime.driver", "vispark.plan.lower.lowering"}
    assert not unwanted & modules


@pytest.mark.slow
@pytest.mark.parametrize("statement", [
    "import vispark, vispark.translate as _\nassert callable(vispark.translate)",
    "import vispark.translate.fusion\nassert vispark.translate.__module__ == 'vispark.api.rdds.explain'",
    "from vispark import translate\nassert translate.__module__ == 'vispark.api.rdds.explain'",
    "from vispark import *\nassert VRDD and translate and IN",
    "from vispark.translate import fuse, trace\nimport vispark.translate.kernel",
])
def test_names_are_there_whatever_is_imported_first(statement: str):
    _imported(statement)


def test_every_public_name_is_found():
    assert set(vispark.__all__) <= set(dir(vispark))
    for name in vispark.__all__:
        assert getattr(vispark, name) is not None
    with pytest.raises(AttributeError, match="module 'vispark' has no attribute 'nothing'"):
        _ = vispark.nothing
