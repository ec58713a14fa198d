"""K-means with the sum of absolute differences, min over a list of distances, a broadcast of the centres."""

import numpy as np
from pyspark import SparkContext


class Clusters:
    def __init__(self, sc, k, passes):
        self.sc, self.k, self.passes = sc, k, passes
        self.centers = None

    def fit(self, data):
        self.centers = data.take(self.k)
        for _ in range(self.passes):
            shared = self.sc.broadcast(self.centers)
            stats = data.map(lambda p: (int(np.argmin([np.sum(np.abs(p - c)) for c in shared.value])), (p, 1))) \
                .reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1])).mapValues(lambda s: s[0] / s[1]).collect()
            for index, center in stats:
                self.centers[index] = center
        return self


if __name__ == "__main__":
    sc = SparkContext.getOrCreate()
    rng = np.random.default_rng(9)
    points = sc.parallelize([rng.normal(size=3) + 3 * (i % 4) for i in range(3000)], 4).cache()
    model = Clusters(sc, 4, 6).fit(points)
    print(model.centers)
