"""Scores of all rows in each pass, collected in their order, and a weight that follows them."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
_rng = np.random.default_rng(11)
_rows = list(_rng.standard_normal((240, 4)))

data = sc.parallelize(_rows, 4).cache()
w = np.array([0.5, -1.0, 2.0, 0.25])
for _number in range(4):
    scores = data.map(lambda p: p * np.tanh(np.dot(p, w))).collect()
    w = w + 0.1 * np.mean(scores, axis=0)
