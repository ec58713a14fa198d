"""Logistic regression by Newton's method: gradient and Hessian in one pass."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
rng = np.random.default_rng(41)
X = np.hstack([np.ones((3000, 1)), rng.normal(size=(3000, 4))])
y = (rng.random(3000) < 1 / (1 + np.exp(-X @ np.array([0.3, 1.0, -2.0, 0.5, 0.0])))).astype(float)
samples = sc.parallelize(list(zip(X, y.tolist())), 4).cache()
beta = np.zeros(5)
for step in range(6):
    def terms(sample):
        x, label = sample
        p = 1.0 / (1.0 + np.exp(-x.dot(beta)))
        return (label - p) * x, p * (1 - p) * np.outer(x, x)

    g, H = samples.map(terms).reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    beta = beta + np.linalg.solve(H, g)
print(beta)
