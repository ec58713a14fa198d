"""A driver to be killed: caches two VRDDs, says so, and goes on running plans. Run by test_driver.py."""

from __future__ import annotations

import os
import sys

import numpy as np
from pyspark import SparkConf, SparkContext

import vispark  # noqa: F401  It adds the operations to RDD.
from tests.system.topology import jvm_options


def main() -> None:
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.vispark.device", "host")
    conf.set("spark.driver.host", "127.0.0.1").set("spark.vispark.lease", sys.argv[1])
    conf.set("spark.driver.extraJavaOptions", jvm_options())
    conf.set("spark.executorEnv.VISPARK_RUNTIME_DIR", os.environ["VISPARK_RUNTIME_DIR"])
    sc = SparkContext(conf=conf)
    device = sc.parallelize([np.arange(1000.0)] * 8, 4).cache("GPU")
    host = sc.parallelize(range(100), 4).send().cache()
    assert device.count() == 8 and host.count() == 100
    print("ready", flush=True)
    while True:
        assert len(device.collect()) == 8


if __name__ == "__main__":
    main()
