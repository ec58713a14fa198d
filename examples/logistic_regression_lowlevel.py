"""Logistic regression by gradient descent, with CUDA kernels of one's own on data that stays in the workers.

    python examples/logistic_regression_lowlevel.py                       # breast-cancer data from scikit-learn
    python examples/logistic_regression_lowlevel.py --generate 400000     # text files of 40 features, made first
"""

import operator
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from pyspark import SparkContext
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from vispark import IN, OUT, Kernels

PLAIN = "plain PySpark, NumPy blocks"


def write_files(folder: str, rows: np.ndarray, files: int = 8) -> None:
    """Write a label, -1 or 1, and its features on each line."""
    for index, part in enumerate(np.array_split(rows, files)):
        np.savetxt(Path(folder, f"part-{index:02}.txt"), part, fmt="%.6g")


def breast_cancer() -> np.ndarray:
    features, labels = load_breast_cancer(return_X_y=True)
    return np.column_stack([2 * labels - 1, StandardScaler().fit_transform(features)])


def made_up(count: int, features: int = 40) -> np.ndarray:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, features))
    return np.column_stack([np.where(x @ rng.normal(size=features) + rng.normal(size=count) > 0, 1, -1), x])


def parse(text: str) -> np.ndarray:
    return np.array(text.split(), np.float32).reshape(text.count("\n"), -1)


def plain_gradient(block: np.ndarray, w: np.ndarray) -> np.ndarray:
    y, x = block[:, 0], block[:, 1:]
    return ((1 / (1 + np.exp(-y * (x @ w))) - 1) * y) @ x


def descend(gradient, features: int, rate: float, iterations: int, title: str) -> tuple[np.ndarray, float]:
    """Return the weights after some iterations, and the seconds that one takes."""
    w = np.zeros(features, np.float32)
    gradient(w)                                    # brings the data in
    start = time.perf_counter()
    for _ in track(range(iterations), title):
        w -= np.float32(rate) * gradient(w)
    return w, (time.perf_counter() - start) / iterations


@click.command(help=__doc__)
@click.option("--generate", "count", type=int, help="Rows to make up and read instead.")
@click.option("--iterations", default=60)
def main(count: int | None, iterations: int) -> None:
    sc = SparkContext.getOrCreate()
    rows = made_up(count) if count else breast_cancer()
    features, rate = rows.shape[1] - 1, 4 / len(rows)
    lr = Kernels.from_file(Path(__file__).with_name("logistic_regression.cu"), options=[f"-DD={features}"])
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, rows)
        read = sc.wholeTextFiles(folder, 4).mapValues(parse)
        points, plain = read.send().htod().cache(), read.values().cache()

        def gradients(w):
            m = points.exec(lr.gradient, IN, OUT, w, IN.shape[0], out=lambda b: ((b.shape[0], features), "f4"),
                            grid=lambda b: -(-b.shape[0] // 128), block=128)
            return m.exec(lr.local_reduce, IN, OUT, IN.shape[0], out=lambda b: ((features,), "f4"),
                          grid=features, block=256)

        ways = {
            PLAIN: lambda w: plain.map(lambda block: plain_gradient(block, w)).reduce(operator.add),
            "vispark, recv: a Spark job each": lambda w: gradients(w).dtoh().recv().values().reduce(operator.add),
            "vispark, straight to the workers": lambda w: gradients(w).values().reduce(operator.add),
        }
        results = {way: descend(gradient, features, rate, iterations, way) for way, gradient in ways.items()}
        place = points.explanation().split("== Data")[1]
    reference, slowest = results[PLAIN]
    table = Table("way", "accuracy", "ms an iteration", "times faster", title=f"{len(rows)} rows, {features} features")
    for way, (w, seconds) in results.items():
        np.testing.assert_allclose(w, reference, rtol=2e-3, atol=2e-4)
        accuracy = np.mean(np.sign(rows[:, 1:] @ w) == rows[:, 0])
        table.add_row(way, f"{accuracy:.2%}", f"{seconds * 1e3:.2f}", f"{slowest / seconds:.1f}")
    Console().print(table)
    Console().print(f"Where the data lives: {place.splitlines()[1]}")
    assert accuracy > 0.9


if __name__ == "__main__":
    main()
