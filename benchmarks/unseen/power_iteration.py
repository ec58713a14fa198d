"""Largest eigenvector of a covariance matrix by power iteration, rows of a matrix being records."""

import numpy as np
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("power iteration").getOrCreate()
sc = spark.sparkContext
rows = np.random.default_rng(2).normal(size=(3000, 8)) * np.arange(1, 9)
matrix = sc.parallelize(rows.tolist(), 4).map(np.array)
matrix.persist()
vector = np.ones(8) / np.sqrt(8.0)
change = 1.0
passes = 0
while change > 1e-6 and passes < 15:
    product = matrix.map(lambda row: row * row.dot(vector)).sum()
    previous, vector = vector, product / np.linalg.norm(product)
    change = float(np.abs(vector - previous).max())
    passes += 1
print("eigenvector", vector, "after", passes)
spark.stop()
