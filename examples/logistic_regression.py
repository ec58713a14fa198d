"""The stock PySpark logistic regression, and the same with its hot lines changed so that the passes run on the device.

    python examples/logistic_regression.py            # breast-cancer data; writes logistic_regression.png
"""

import time
from math import exp
from pathlib import Path

import click
import matplotlib
import numpy as np
from numpy import dot
from pyspark import SparkContext
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import vispark  # noqa: F401 - adds cache("GPU"), vmap and vreduce

matplotlib.use("Agg")
from matplotlib import pyplot as plt


# The stock program's gradient is of a block of rows, so that Python is called once for a block. vmap calls no Python
# and takes a function of a row, which threads compute side by side: x.dot(w) becomes dot(w, x), the sum over the rows
# a vreduce, and both one kernel that reads each block once and stores nothing of its rows. Written for a block it
# would be one thread's work, with arrays as long as the block between its operations; so the row form stays.
def plain_gradient(matrix, w):                     # of a block of rows, in NumPy
    y, x = matrix[:, 0], matrix[:, 1:]
    return ((1.0 / (1.0 + np.exp(-y * x.dot(w))) - 1.0) * y * x.T).sum(1)


def gradient(p, w):                                # of one row; becomes a kernel
    y, x = p[0], p[1:]
    return (1 / (1 + exp(-y * dot(w, x))) - 1) * y * x


def add(x, y):
    x += y
    return x


def plain(points, w, iterations, rate):
    points = points.cache()
    for _ in range(iterations):
        w -= rate * points.map(lambda m, w=w: plain_gradient(m, w)).reduce(add)
        yield w


def ported(points, w, iterations, rate):           # as vispark port has it, with a row function of its own
    points = points.cache("GPU")
    for _ in range(iterations):
        w -= rate * points.vmap(gradient, w, of="row").vreduce(add).reduce(add)
        yield w


def loss(rows, w):
    return np.log1p(np.exp(-rows[:, 0] * (rows[:, 1:] @ w))).mean()


@click.command(help=__doc__)
@click.option("--iterations", default=50)
@click.option("--picture", default="logistic_regression.png")
def main(iterations: int, picture: str) -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    rows = np.column_stack([2 * labels - 1, StandardScaler().fit_transform(features)]).astype(np.float32)
    sc = SparkContext.getOrCreate()
    points = sc.parallelize(np.array_split(rows, 4), 2)
    rate, losses, weights = np.float32(4 / len(rows)), {}, {}
    for way in (plain, ported):
        w, start = np.zeros(features.shape[1], np.float32), time.perf_counter()
        losses[way.__name__] = [loss(rows, w) for w in way(points, w, iterations, rate)]
        weights[way.__name__] = w
        accuracy = np.mean(np.sign(rows[:, 1:] @ w) == rows[:, 0])
        print(f"{way.__name__:7} accuracy {accuracy:.2%}, {(time.perf_counter() - start) / iterations * 1e3:.1f} ms "
              "an iteration, the first one included")
    np.testing.assert_allclose(weights["ported"], weights["plain"], rtol=2e-3, atol=2e-4)
    for style, (name, values) in zip(("-", "--"), losses.items(), strict=True):
        plt.plot(values, style, label=name)
    plt.xlabel("iteration"), plt.ylabel("mean log loss"), plt.legend()
    plt.savefig(picture, dpi=120)
    print(f"the two agree; loss drawn in {Path(picture).resolve().name}")


if __name__ == "__main__":
    main()
