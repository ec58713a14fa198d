"""Digits that are like a digit: exact neighbours, and those that share a bucket of random projections.

    python examples/ml/similarity.py    # 1,797 digits that scikit-learn ships; writes similarity.png
"""

import matplotlib
import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

from vispark.ml.feature import BucketedRandomProjectionLSH
from vispark.ml.neighbors import NearestNeighbors

matplotlib.use("Agg")
from matplotlib import pyplot as plt

NEAREST = 8
spark = SparkSession.builder.getOrCreate()
digits = load_digits()
df = spark.createDataFrame([(number, int(digit), Vectors.dense(row)) for number, (digit, row)
                            in enumerate(zip(digits.target, digits.data, strict=True))],
                           ["id", "digit", "pixels"]).repartition(2).cache()
queries = [3, 20, 77]

# A query is a pass over the loaded rows.
exact = NearestNeighbors(k=NEAREST, inputCol="pixels").fit(df)
nearest = {query: exact.nearest(Vectors.dense(digits.data[query])).collect() for query in queries}
for query, rows in nearest.items():
    distances = np.sort(np.linalg.norm(digits.data - digits.data[query], axis=1))[:NEAREST]
    np.testing.assert_allclose([row.distCol for row in rows], distances, rtol=1e-12)
    print(f"a {digits.target[query]}: nearest are {[row.digit for row in rows]}")
print("the distances are NumPy's")

tables, shares = [1, 2, 4, 8], []
for count in tables:
    model = BucketedRandomProjectionLSH(inputCol="pixels", outputCol="hashes", bucketLength=4.0, numHashTables=count,
                                        seed=1).fit(df)
    found = [{row.id for row in model.approxNearestNeighbors(df, Vectors.dense(digits.data[query]), NEAREST).collect()}
             & {row.id for row in nearest[query]} for query in queries]
    shares.append(np.mean([len(each) / NEAREST for each in found]))
    print(f"{count} tables of hashes: {shares[-1]:.0%} of the nearest")
assert shares[-1] > shares[0]

figure, axes = plt.subplots(len(queries), NEAREST + 1, figsize=(NEAREST + 1, len(queries) + 0.5))
for line, query in zip(axes, queries, strict=True):
    pictures = [digits.data[query], *(row.pixels.toArray() for row in nearest[query])]
    for cell, picture in zip(line, pictures, strict=True):
        cell.imshow(picture.reshape(8, 8), cmap="gray_r")
        cell.set_xticks([]), cell.set_yticks([])
axes[0, 0].set_title("query"), axes[0, 1].set_title("nearest")
figure.tight_layout()
figure.savefig("similarity.png", dpi=100)
