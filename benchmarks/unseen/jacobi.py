"""Jacobi's method for a diagonally dominant system; a record is (number of the row, row, right-hand side)."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
size = 200
draw = np.random.default_rng(5)
A = draw.uniform(-1, 1, (size, size)) + 2 * size * np.eye(size)
b = draw.uniform(-1, 1, size)
equations = sc.parallelize([(i, A[i], float(b[i])) for i in range(size)], 4).cache()
x = np.zeros(size)
for sweep in range(10):
    updated = equations.map(lambda e: (e[2] - np.dot(e[1], x) + e[1][e[0]] * x[e[0]]) / e[1][e[0]]).collect()
    x = np.array(updated)
residual = np.abs(A @ x - b).max()
print("residual", residual)
