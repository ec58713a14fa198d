"""Softmax regression with four classes over blocks of rows, made by mapPartitions."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
CLASSES, FEATURES = 4, 5
generator = np.random.default_rng(31)
X = generator.normal(size=(6000, FEATURES))
labels = (X @ generator.normal(size=(FEATURES, CLASSES))).argmax(1)
rows = sc.parallelize(list(np.hstack([np.eye(CLASSES)[labels], X])), 4)
blocks = rows.mapPartitions(lambda it: [np.array(list(it))]).cache()
count = rows.count()


def gradient(block, W):
    Y, features = block[:, :CLASSES], block[:, CLASSES:]
    scores = np.exp(features.dot(W))
    probabilities = scores / scores.sum(axis=1)[:, None]
    return features.T.dot(probabilities - Y)


W = np.zeros((FEATURES, CLASSES))
for epoch in range(10):
    W = W - 0.5 / count * blocks.map(lambda block, W=W: gradient(block, W)).reduce(lambda a, b: a + b)
print(W)
