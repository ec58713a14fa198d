"""Linear support vector machine by subgradients; records are (label, features)."""

import numpy as np
from pyspark import SparkConf, SparkContext


def hinge(point, weights):
    label, x = point
    margin = label * np.dot(x, weights)
    if margin < 1:
        return -label * x
    return 0.0 * x


def train(points, dimension, passes, rate=0.5, reg=0.01):
    weights = np.zeros(dimension)
    total = points.count()
    for t in range(1, passes + 1):
        subgradient = points.map(lambda point: hinge(point, weights)).reduce(lambda a, b: a + b) / total
        weights = (1 - rate * reg / t) * weights - rate / t * subgradient
    return weights


if __name__ == "__main__":
    sc = SparkContext(conf=SparkConf().setAppName("svm"))
    generator = np.random.RandomState(4)
    x = generator.randn(4000, 6)
    y = np.sign(x.dot(generator.randn(6)) + 0.2 * generator.randn(4000))
    points = sc.parallelize([(float(label), row) for label, row in zip(y, x)], 3).cache()
    result = train(points, 6, 10)
    print(result)
    sc.stop()
