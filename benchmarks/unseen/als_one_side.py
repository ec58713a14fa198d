"""Matrix factorisation: gradient steps on items' factors, users' fixed; records (user, item, rating)."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
users, items, rank = 60, 25, 4
rng = np.random.default_rng(21)
U = rng.normal(size=(users, rank))
V = rng.normal(size=(items, rank))
truth = rng.normal(size=(users, rank)) @ rng.normal(size=(rank, items))
ratings = sc.parallelize([(int(u), int(i), float(truth[u, i])) for u, i in zip(
    rng.integers(0, users, 4000), rng.integers(0, items, 4000))], 4).cache()


def item_gradient(rating):
    u, i, r = rating
    error = np.dot(U[u], V[i]) - r
    return i, error * U[u]


for epoch in range(6):
    gradients = ratings.map(item_gradient).reduceByKey(lambda a, b: a + b).collectAsMap()
    for item, gradient in gradients.items():
        V[item] = V[item] - 0.002 * gradient
    loss = ratings.map(lambda rating: (np.dot(U[rating[0]], V[rating[1]]) - rating[2]) ** 2).sum()
    print(epoch, loss)
