"""Program of ``vispark cluster doctor``: tasks report of each node what they find there, as one line of JSON."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark import SparkContext, TaskContext

from gpu_worker.protocol.version import __version__

#: Begins the line that has the answer.
ANSWER = "vispark-doctor: "


def facts(resources: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return facts of this process: Python, vispark, addresses of GPUs, memory and space, in bytes."""
    shm = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    return {"host": os.environ.get("SPARK_EXECUTOR_POD_NAME") or os.environ.get("SPARK_LOCAL_IP") or
            socket.gethostname(), "python": platform.python_version(), "executable": sys.executable,
            "vispark": __version__, "user": os.getuid(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "shm": shm,
            "runtime_dir": os.environ.get("VISPARK_RUNTIME_DIR", ""),
            "gpus": list(resources["gpu"].addresses) if resources and "gpu" in resources else []}


def of_task(_: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield the facts of a task."""
    context = TaskContext.get()
    assert context is not None
    yield facts(context.resources())


def main() -> None:
    """Ask each slot, and compute something in each worker."""
    sc = SparkContext()
    sc.setLogLevel("ERROR")
    try:
        slots = max(2, sc.defaultParallelism)
        nodes = sc.parallelize(range(slots), slots).mapPartitions(of_task).collect()
        data = sc.parallelize([float(each) for each in range(100)], slots).cache("GPU")  # type: ignore[call-arg]
        computed = data.vmap(lambda x: 2.0 * x).sum()  # type: ignore[attr-defined]
        answer = {"master": sc.master, "spark": sc.version, "device": sc.getConf().get("spark.vispark.device", "auto"),
                  "driver": facts(), "tasks": nodes, "computes": computed == 9900.0}
    finally:
        sc.stop()
    print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
