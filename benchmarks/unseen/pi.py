"""Pi by Monte Carlo: points are drawn once, and disks of growing radius counted."""

import random

from pyspark import SparkContext

sc = SparkContext.getOrCreate()


def draw(seed):
    generator = random.Random(seed)
    return generator.random(), generator.random()


points = sc.parallelize(range(20000), 4).map(draw).cache()
total = points.count()
estimates = []
for step in range(1, 9):
    radius = step / 8
    inside = points.filter(lambda p: p[0] ** 2 + p[1] ** 2 <= radius ** 2).count()
    estimates.append(4.0 * inside / total / radius ** 2)
print(estimates)
