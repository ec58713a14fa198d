"""GPUs that Spark assigned, as a task finds them, and the shares of loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vispark.api.rdds.gpu_profile import _share
from vispark.errors import DeviceUnavailable
from vispark.runtime.executor import assigned_gpus
from vispark.runtime.executor.assigned_gpus import AssignedGpus, on_machine


@pytest.fixture
def executor(monkeypatch, tmp_path):
    """Make this process one of an executor with some command line, resources file and CUDA_VISIBLE_DEVICES."""
    def become(arguments: dict[str, str] | None = None, file: object = None, visible: str | None = None) -> None:
        arguments = dict(arguments or {})
        if file is not None:
            path = tmp_path / "resources.json"
            path.write_text(file if isinstance(file, str) else json.dumps(file))
            arguments["--resourcesFile"] = str(path)
        assigned_gpus._file_addresses.cache_clear()
        monkeypatch.setattr(assigned_gpus, "_executor_arguments", lambda: arguments)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return become


def _resources(name: str, *addresses: str) -> list[dict]:
    return [{"id": {"componentName": "spark.executor", "resourceName": name}, "addresses": list(addresses)}]


def test_the_resources_file_comes_first(executor):
    executor({"--executor-id": "3"}, [*_resources("fpga", "9"), *_resources("gpu", "2", "3")])
    assert AssignedGpus(True, {"3": ("0",)}).own_addresses() == ("2", "3")


@pytest.mark.parametrize("file", ["not json", "[]", '[{"addresses": ["1"]}]', "7"])
def test_a_file_that_cannot_be_read_is_as_none(executor, file):
    executor({"--executor-id": "3"}, file)
    assert AssignedGpus(True, {"3": ("0",)}).own_addresses() == (() if file == "[]" else ("0",))


def test_the_driver_knows_where_there_is_no_file(executor):
    executor({"--executor-id": "12"})
    assert AssignedGpus(True, {"1": ("0",), "12": ("GPU-5", "MIG-6")}).own_addresses() == ("GPU-5", "MIG-6")


def test_a_younger_executor_has_what_its_task_has(executor, monkeypatch):
    executor({"--executor-id": "13"})
    monkeypatch.setattr(assigned_gpus, "task_addresses", lambda: ("4",))
    assert AssignedGpus(True, {"12": ("0",)}).own_addresses() == ("4",)


def test_local_tasks_have_the_drivers(executor):
    executor()
    assert AssignedGpus(True, {"driver": ("1",)}).own_addresses() == ("1",)


def test_addresses_are_those_of_the_machine(executor):
    executor({"--executor-id": "0"}, _resources("gpu", "0", "1"), visible="GPU-b, GPU-c,GPU-d")
    assert AssignedGpus(True).own_addresses() == ("GPU-b", "GPU-c")


@pytest.mark.parametrize(("address", "visible"), [("2", "4,5"), ("GPU-x", "GPU-y"), ("0", ""), ("-1", "3")])
def test_an_address_that_is_hidden_is_an_error_that_names_both(address, visible):
    with pytest.raises(DeviceUnavailable, match=f"'{address}'.*CUDA_VISIBLE_DEVICES={visible} hides it.*--script"):
        on_machine([address], visible)


def test_all_addresses_that_are_hidden_are_named_at_once():
    with pytest.raises(DeviceUnavailable, match=r"the GPUs '7', '9' to this executor, .*=4,7x hides them"):
        on_machine(["4", "7", "9"], "4,7x")


@pytest.mark.parametrize(("addresses", "visible", "names"), [
    (["0", "1"], "1,2", ("1", "2")),                            # places, though 1 is an entry, too
    (["1", "2"], "1,2", ("1", "2")),
    (["0", "1"], "MIG-aa,MIG-bb", ("MIG-aa", "MIG-bb")),        # the manager masks by UUIDs, Spark counts
    (["GPU-5c3f-02", "gpu-77"], "GPU-5c,GPU-77d1", ("GPU-5c", "GPU-77d1")),
    (["0"], "3,-1,4", ("3",)),
    ([], "", ()),
])
def test_a_mask_of_the_cluster_manager(addresses, visible, names):
    assert on_machine(addresses, visible) == names


def test_entries_behind_one_below_zero_are_hidden():
    with pytest.raises(DeviceUnavailable, match=r"'1' .*CUDA_VISIBLE_DEVICES=3,-1,4 hides it"):
        on_machine(["1"], "3,-1,4")


@pytest.mark.parametrize("owned", range(1, 9))
@pytest.mark.parametrize("slots", range(1, 17))
def test_shares_are_what_spark_takes_and_let_so_many_tasks_run(owned, slots):
    share = _share(owned, slots)
    assert share <= 0.5 or share == int(share)
    at_once = owned * int(1 / share) if share <= 0.5 else owned // share
    assert at_once >= slots


#: An executor, PySpark's fork server and a Python worker, which says twice whose it is.
PROCESSES = """
import os, subprocess, sys
if sys.argv[1] == "executor":
    subprocess.run([sys.executable, __file__, "pyspark.daemon"])
elif os.fork():
    os.wait()
else:
    from vispark.runtime.executor.assigned_gpus import executor_process
    for _ in range(2):
        print(executor_process(), flush=True)
        sys.stdin.readline()
"""


def test_a_python_worker_that_outlives_its_executor_is_no_other_processs(tmp_path: Path):
    (tmp_path / "processes.py").write_text(PROCESSES)
    with subprocess.Popen([sys.executable, str(tmp_path / "processes.py"), "executor"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env=os.environ) as executor:
        assert int(executor.stdout.readline()) == executor.pid
        executor.kill()
        printed, _ = executor.communicate("\n\n")
    assert int(printed) == executor.pid      # and not the process that adopts orphans, which never ends
