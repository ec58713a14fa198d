"""Least squares by gradients, with the loss of each pass."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
_rng = np.random.default_rng(7)
_rows = [np.append(3.0 * x[0] - x[2] + 0.1, x) for x in _rng.standard_normal((240, 4))]

data = sc.parallelize(_rows, 4).cache()
w = np.zeros(4)
for _number in range(4):
    loss = data.map(lambda p: (p[0] - np.dot(p[1:], w)) ** 2).sum()
    total = data.map(lambda p: (np.dot(p[1:], w) - p[0]) * p[1:]).reduce(lambda a, b: a + b)
    w = w - total / 240
