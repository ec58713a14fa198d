"""Logistic regression by gradients over rows of a label and four numbers."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
_rng = np.random.default_rng(5)
_rows = [np.append(1.0 - 2.0 * (i % 2), _rng.standard_normal(4) + (i % 2)) for i in range(240)]


def gradient(p, w):
    y, x = p[0], p[1:]
    return (1.0 / (1.0 + np.exp(-y * np.dot(x, w))) - 1.0) * y * x


data = sc.parallelize(_rows, 4).cache()
w = np.full(4, 0.1)
for _number in range(4):
    total = data.map(lambda p: gradient(p, w)).reduce(lambda a, b: a + b)
    w = w - 0.01 * total
