"""K-means over rows of four numbers, from three of them on."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
_rng = np.random.default_rng(3)
_rows = [_rng.standard_normal(4) + 1.5 * (i % 3) for i in range(240)]


def closest(p, centres):
    best, least = 0, float("inf")
    for i in range(len(centres)):
        distance = np.sum((p - centres[i]) ** 2)
        if distance < least:
            best, least = i, distance
    return best


data = sc.parallelize(_rows, 4).cache()
centres = [np.array([0.0, 0.1, 0.0, 0.2]) + 0.25 * i for i in range(3)]
for _number in range(4):
    pairs = data.map(lambda p: (closest(p, centres), (p, 1)))
    sums = pairs.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    found = sums.map(lambda s: (s[0], s[1][0] / s[1][1])).collect()
    for key, centre in found:
        centres[key] = centre
