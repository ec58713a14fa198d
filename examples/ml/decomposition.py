"""Handwritten digits as sums of a few components: principal ones, and ones without negative numbers.

    python examples/ml/decomposition.py    # 1,797 digits that scikit-learn ships; writes decomposition.png
"""

import matplotlib
import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as Reference

from vispark.ml.decomposition import NMF
from vispark.ml.feature import PCA

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COMPONENTS = 8
spark = SparkSession.builder.getOrCreate()
digits = load_digits().data
df = spark.createDataFrame([(Vectors.dense(row),) for row in digits], ["pixels"]).repartition(2).cache()

# One load for both: two passes for the covariance, and one for each of NMF's iterations.
principal = PCA(k=COMPONENTS, inputCol="pixels", outputCol="out").fit(df)
parts = NMF(k=COMPONENTS, inputCol="pixels", outputCol="weights", seed=1, maxIter=60).fit(df)

reference = Reference(COMPONENTS).fit(digits)
np.testing.assert_allclose(principal.explainedVariance.toArray(), reference.explained_variance_ratio_, rtol=1e-6)
print(f"{COMPONENTS} principal components explain {principal.explainedVariance.toArray().sum():.1%} of the variance, "
      "as scikit-learn's do")
share = 1 - parts.objectiveHistory[-1] / (digits ** 2).sum()
print(f"{COMPONENTS} components without negative numbers give {share:.1%} of the squares, "
      f"in {len(parts.objectiveHistory)} passes")

weights = np.array([row.weights.toArray() for row in parts.transform(df.limit(4)).collect()])
shown = np.array([row.pixels.toArray() for row in df.limit(4).collect()])
figure, axes = plt.subplots(4, COMPONENTS, figsize=(COMPONENTS, 4.6))
pictures = [principal.pc.toArray().T, parts.components,
            [*shown, *np.zeros((4, 64))], [*(weights @ parts.components), *np.zeros((4, 64))]]
for row, name, images in zip(axes, ("PCA", "NMF", "digit", "sum"), pictures, strict=True):
    row[0].set_ylabel(name)
    for cell, image in zip(row, images, strict=True):
        cell.imshow(np.reshape(image, (8, 8)), cmap="gray_r")
        cell.set_xticks([]), cell.set_yticks([])
figure.tight_layout()
figure.savefig("decomposition.png", dpi=100)
assert parts.components.min() >= 0 and weights.min() >= 0
