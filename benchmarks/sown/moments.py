"""Sums and sums of squares by key, of numbers that are scaled anew in each pass."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
_rng = np.random.default_rng(13)
_rows = [np.append(float(i % 5), _rng.standard_normal(3)) for i in range(240)]

data = sc.parallelize(_rows, 4).cache()
w = np.ones(3)
for _number in range(4):
    pairs = data.map(lambda p: (int(p[0]), (p[1:] * w, (p[1:] * w) ** 2)))
    found = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1])).collect()
    w = w / np.sqrt(np.sqrt(sum(each[1][1] for each in found) / 240))
