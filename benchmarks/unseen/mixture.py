"""Mixture of three spherical normal densities by expectation-maximisation, in NumPy's ways."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
K, D = 3, 2
rng = np.random.default_rng(8)
centres = np.array([[0.0, 0.0], [4.0, 4.0], [-4.0, 4.0]])
points = sc.parallelize(list(np.concatenate([rng.normal(c, 1.0, (700, D)) for c in centres])), 4).cache()
n = points.count()
means = np.array(points.take(K)) + np.array([[0.0, 0.0], [2.0, 2.0], [-2.0, 2.0]])
variances = np.ones(K)
weights = np.full(K, 1.0 / K)


def responsibilities(p, means, variances, weights):
    squared = np.sum((means - p) ** 2, axis=1)
    density = weights * np.exp(-squared / (2 * variances)) / variances ** (D / 2)
    return density / np.sum(density)


def statistics(p, means, variances, weights):
    r = responsibilities(p, means, variances, weights)
    return r, np.outer(r, p), r * np.sum((means - p) ** 2, axis=1)


for iteration in range(8):
    total, sums, squares = points.map(lambda p: statistics(p, means, variances, weights)).reduce(
        lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2]))
    weights = total / n
    means = sums / total[:, None]
    variances = squares / (D * total)
print(means, variances, weights)
