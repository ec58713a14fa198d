"""Value at risk: scenarios of returns are drawn once, then valued for several portfolios."""

import numpy as np
from pyspark import SparkContext


def scenarios(index, count, assets):
    generator = np.random.default_rng(index)
    return [generator.normal(0.0005, 0.02, assets) for _ in range(count)]


def main():
    sc = SparkContext.getOrCreate()
    drawn = sc.parallelize(range(8), 4).flatMap(lambda index: scenarios(index, 500, 6)).cache()
    risks = []
    for tilt in range(5):
        weights = np.ones(6) / 6 + 0.02 * (tilt - 2) * np.array([1, -1, 1, -1, 1, -1])
        losses = drawn.map(lambda r: -float(np.dot(weights, r)))
        mean, deviation = losses.mean(), losses.stdev()
        worst = losses.top(20)
        risks.append((mean, deviation, worst[-1]))
    print(risks)


if __name__ == "__main__":
    main()
