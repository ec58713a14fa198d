"""Program of ``test_full_machine.py``: a file system that is full, and what is asked of it there.

It runs where ``/dev/shm`` and the directory given are small file systems of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext

import vispark
from tests.system.test_larger_than_gpu import rows


def main(directory: str) -> None:
    """Print how each action ends."""
    Path("/dev/shm/full").write_bytes(bytes(60 << 10))
    options = {"device": "host", "memory": "64m", "hostMemory": "32m", "spillDir": directory}
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false") \
        .setAll([(f"spark.vispark.{name}", value) for name, value in options.items()])
    with SparkContext(conf=conf) as sc:
        numbers = sc.parallelize(range(100), 2).cache("GPU")
        print("shared memory:", numbers.sum())
        for level in ("GPU_HOST_AND_DISK", "GPU_AND_HOST"):
            try:
                rows(sc).persist(level).count()
            except vispark.VisparkError as error:
                print(f"{level}: {type(error).__name__}: {error}")
        print("held:", numbers.sum(), "files:", sum(1 for _ in Path(directory).iterdir()))


if __name__ == "__main__":
    main(sys.argv[1])
