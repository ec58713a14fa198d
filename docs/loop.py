"""Loop that the pictures of docs/guide/monitoring.md are of: an action a pass, and at times 50 steps of a stencil."""

import numpy as np
from pyspark import SparkConf, SparkContext

import vispark
from vispark import Grid, stencil

sc = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("points and heat")
                  .set("spark.vispark.device", "host:2"))
print(vispark.dashboard(sc).link(), flush=True)


@stencil
def heat(u, k):
    return u[0, 0] + k * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])


points = sc.parallelize(list(np.random.default_rng(0).normal(size=(20_000, 3))), 3).cache("GPU").setName("points")
grid = Grid((300, 200), splits=(2, 1)).scatter(sc, np.hypot, partitions=2).cache("GPU").setName("temperature")
weights = np.zeros(3)
for step in range(1_000_000):
    weights -= points.vmap(lambda p, w: (p @ w - p[0]) * p, weights).sum() / 200_000
    if step % 20 == 0:
        warmest = Grid.max(grid.iterate(heat, 0.1, steps=50))
