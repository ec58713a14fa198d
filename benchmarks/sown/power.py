"""Power iteration: the largest eigenvalue of a Gram matrix, by its rows' terms."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
_rng = np.random.default_rng(17)
_rows = list(_rng.standard_normal((240, 4)) * [1.0, 2.0, 3.0, 4.0])

data = sc.parallelize(_rows, 4).cache()
w = np.full(4, 0.5)
for _number in range(4):
    total = data.map(lambda p: np.dot(p, w) * p).reduce(lambda a, b: a + b)
    size = float(np.sqrt(np.dot(total, total)))
    w = total / size
