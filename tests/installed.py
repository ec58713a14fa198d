"""Program that .ci/wheel runs with the wheel alone: every part of it that lies in files of its own is used once."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from pyspark import SparkConf, SparkContext

import vispark
from vispark import IN, OUT, Grid, Kernels, stencil


@stencil
def smooth(u):
    return (u[-1] + u[0] + u[1]) / 3


def main() -> None:
    assert Path(vispark.__file__).is_relative_to(sys.prefix), vispark.__file__
    assert Path(vispark.__file__).with_name("py.typed").exists()
    # As Spark runs it, by its path.
    command = Path(sys.executable).with_name("gpu-worker")
    script = subprocess.check_output([command, "gpus", "--script"], text=True).strip()
    resources = subprocess.check_output([script], env=os.environ | {"CUDA_VISIBLE_DEVICES": "0,3"})
    assert json.loads(resources) == {"name": "gpu", "addresses": ["0", "3"]}, resources
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.vispark.device", "host")
    with SparkContext(conf=conf) as sc:
        rows = sc.parallelize([np.full(3, i, np.float32) for i in range(10)], 2).cache("GPU")
        assert rows.vmap(lambda p, k: k * p.sum(), 2.0).sum() == 270
        matrix = np.eye(32, dtype=np.float32)
        far = sc.parallelize([np.float32(row) for row in 9 * matrix], 2).cache("GPU")
        assert far.vmap(lambda p, c: int(np.argmin(((c - p) ** 2).sum(axis=1))), matrix).collect() == list(range(32))
        kernels = Kernels('extern "C" __global__ void twice(const float* x, float* y, int n)'
                          "{ int i = threadIdx.x; if (i < n) y[i] = 2 * x[i]; }")
        doubled = rows.exec(kernels.twice, IN, OUT, IN.size, grid=1, block=32)
        assert np.array_equal(doubled.reduce(operator.add), [90, 90, 90])
        blocks = Grid((16,), splits=(2,), boundary="periodic").scatter(sc, np.arange(16.0)).cache("GPU")
        assert np.isclose(Grid.gather(blocks.iterate(smooth, steps=3)).sum(), 120)
    print(f"vispark {vispark.__version__} runs from {Path(vispark.__file__).parent.parent}")


if __name__ == "__main__":
    main()
