"""The stock PySpark K-means, and the same with its hot lines changed so that the passes run on the device.

    python examples/kmeans.py            # the handwritten digits that scikit-learn ships; writes kmeans.png
"""

import time
from math import inf

import click
import matplotlib
import numpy as np
from pyspark import SparkContext
from sklearn.datasets import load_digits

import vispark  # noqa: F401 - adds cache("GPU") and vmap to RDDs

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def closest_point(p, centers):
    best, closest = 0, inf
    for i in range(len(centers)):
        distance = np.sum((p - centers[i]) ** 2)
        if distance < closest:
            closest = distance
            best = i
    return best


def assign(p, centers):
    return closest_point(p, centers), (p, 1)


def plain(data, centers, iterations):
    data = data.cache()
    for _ in range(iterations):
        closest = data.map(lambda p: assign(p, centers))
        stats = closest.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]))
        for k, (total, count) in stats.collect():
            centers[k] = total / count
    return centers


def ported(data, centers, iterations):
    data = data.cache("GPU")
    for _ in range(iterations):
        closest = data.vmap(assign, centers)
        stats = closest.reduceByKey(lambda a, b: (a[0] + b[0], a[1] + b[1]), numKeys=len(centers))
        for k, (total, count) in stats.collect():
            centers[k] = total / count
    return centers


@click.command(help=__doc__)
@click.option("--iterations", default=15)
@click.option("--picture", default="kmeans.png")
def main(iterations: int, picture: str) -> None:
    digits = load_digits().data.astype(np.float32)
    first = digits[np.random.default_rng(1).choice(len(digits), 10, replace=False)]
    sc = SparkContext.getOrCreate()
    data, found = sc.parallelize(list(digits), 2), {}
    for way in (plain, ported):
        start = time.perf_counter()
        found[way.__name__] = way(data, first.copy(), iterations)
        seconds = (time.perf_counter() - start) / iterations
        inertia = ((digits[:, None] - found[way.__name__]) ** 2).sum(2).min(1).sum()
        print(f"{way.__name__:7} inertia {inertia:.0f}, {seconds * 1e3:.1f} ms an iteration, the first one included")
    np.testing.assert_allclose(found["ported"], found["plain"], rtol=1e-3, atol=1e-2)
    figure, axes = plt.subplots(2, 10, figsize=(10, 2.4))
    for row, (name, centers) in zip(axes, found.items(), strict=True):
        row[0].set_ylabel(name)
        for cell, center in zip(row, centers, strict=True):
            cell.imshow(center.reshape(8, 8), cmap="gray_r")
            cell.set_xticks([]), cell.set_yticks([])
    figure.savefig(picture, dpi=120)
    print(f"the two agree; the centres are drawn in {picture}")


if __name__ == "__main__":
    main()
