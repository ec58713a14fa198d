"""Ridge regression by gradient descent over rows of a label and seven features."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
rng = np.random.default_rng(11)
truth = rng.normal(size=7)
features = rng.normal(size=(5000, 7))
labels = features @ truth + 0.1 * rng.normal(size=5000)
training = sc.parallelize(list(np.column_stack([labels, features])), 4).cache()
n = training.count()
penalty, step = 0.05, 0.4
w = np.zeros(7)
for iteration in range(12):
    gradient = training.map(lambda row: (np.dot(row[1:], w) - row[0]) * row[1:]).reduce(lambda a, b: a + b)
    w = w - step * (gradient / n + penalty * w)
print("weights", w)
sc.stop()
