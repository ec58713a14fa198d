"""Nearest neighbours of some queries: the five smallest distances of each, records (label, features)."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
rng = np.random.default_rng(13)
samples = [(int(i % 3), rng.normal(size=5) + i % 3) for i in range(3000)]
training = sc.parallelize(samples, 4).cache()
queries = [rng.normal(size=5) + q % 3 for q in range(8)]
predicted = []
for query in queries:
    nearest = training.map(lambda s: (float(np.sqrt(np.sum((s[1] - query) ** 2))), s[0])).takeOrdered(5)
    votes = [label for _, label in nearest]
    predicted.append(max(set(votes), key=votes.count))
print(predicted)
