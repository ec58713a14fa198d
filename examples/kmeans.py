"""The stock PySpark K-means, and the same with its hot lines changed so that the passes run on the device.

    python examples/kmeans.py            # the handwritten digits that scikit-learn ships; writes kmeans.png
"""

import time

import click
import matplotlib
import numpy as np
from pyspark import SparkContext
from sklearn.datasets import load_digits

import vispark  # noqa: F401 - adds cache("GPU") and vmap to RDDs

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def closestPoint(p: np.ndarray, centers: list[np.ndarray]) -> int:
    bestIndex = 0
    closest = float("+inf")
    for i in range(len(centers)):
        tempDist = np.sum((p - centers[i]) ** 2)
        if tempDist < closest:
            closest = tempDist
            bestIndex = i
    return bestIndex


def plain(data, K, convergeDist):
    data = data.cache()
    kPoints = data.takeSample(False, K, 1)
    tempDist = 1.0
    while tempDist > convergeDist:
        closest = data.map(lambda p: (closestPoint(p, kPoints), (p, 1)))
        pointStats = closest.reduceByKey(lambda p1_c1, p2_c2: (p1_c1[0] + p2_c2[0], p1_c1[1] + p2_c2[1]))
        newPoints = pointStats.map(lambda st: (st[0], st[1][0] / st[1][1])).collect()
        tempDist = sum(np.sum((kPoints[iK] - p) ** 2) for (iK, p) in newPoints)
        for (iK, p) in newPoints:
            kPoints[iK] = p
    return kPoints


def ported(data, K, convergeDist):
    data = data.cache("GPU")
    kPoints = data.takeSample(False, K, 1)
    tempDist = 1.0
    while tempDist > convergeDist:
        closest = data.vmap(lambda p: (closestPoint(p, kPoints), (p, 1)))
        pointStats = closest.reduceByKey(lambda p1_c1, p2_c2: (p1_c1[0] + p2_c2[0], p1_c1[1] + p2_c2[1]), numKeys=K)
        newPoints = [(st[0], st[1][0] / st[1][1]) for st in pointStats.collect()]      # K records, without a Spark job
        tempDist = sum(np.sum((kPoints[iK] - p) ** 2) for (iK, p) in newPoints)
        for (iK, p) in newPoints:
            kPoints[iK] = p
    return kPoints


@click.command(help=__doc__)
@click.option("--k", default=10)
@click.option("--converge-dist", default=0.1)
@click.option("--picture", default="kmeans.png")
def main(k: int, converge_dist: float, picture: str) -> None:
    digits = load_digits().data
    sc = SparkContext.getOrCreate()
    data, centers_of = sc.parallelize(list(digits), 2), {}
    for way in (plain, ported):
        start = time.perf_counter()
        centers_of[way.__name__] = np.array(way(data, k, converge_dist))
        inertia = ((digits[:, None] - centers_of[way.__name__]) ** 2).sum(2).min(1).sum()
        print(f"{way.__name__:7} inertia {inertia:.0f}, {time.perf_counter() - start:.1f} s")
    np.testing.assert_allclose(centers_of["ported"], centers_of["plain"], rtol=1e-3, atol=1e-2)
    figure, axes = plt.subplots(2, k, figsize=(k, 2.4))
    for row, (name, centers) in zip(axes, centers_of.items(), strict=True):
        row[0].set_ylabel(name)
        for cell, center in zip(row, centers, strict=True):
            cell.imshow(center.reshape(8, 8), cmap="gray_r")
            cell.set_xticks([]), cell.set_yticks([])
    figure.savefig(picture, dpi=120)
    print(f"the two agree; the centres are drawn in {picture}")


if __name__ == "__main__":
    main()
