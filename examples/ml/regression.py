"""Linear regression with an elastic net, Huber's loss, and a generalized linear model of counts.

    python examples/ml/regression.py    # 442 patients that scikit-learn ships; writes regression.png
"""

import matplotlib
import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet

from vispark.ml.regression import GeneralizedLinearRegression, LinearRegression

matplotlib.use("Agg")
from matplotlib import pyplot as plt

spark = SparkSession.builder.getOrCreate()
patients = load_diabetes(scaled=False)
x = (patients.data - patients.data.mean(axis=0)) / patients.data.std(axis=0)
df = spark.createDataFrame([(float(y), Vectors.dense(row)) for y, row in zip(patients.target, x, strict=True)],
                           ["label", "features"]).repartition(2).cache()

# Fits of one DataFrame share one load: two passes sum the products of all pairs of columns.
strengths = [100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1]
paths = {mix: [LinearRegression(elasticNetParam=mix, regParam=strength, tol=1e-10).fit(df).coefficients.toArray()
               for strength in strengths] for mix in (1.0, 0.0)}
figure, axes = plt.subplots(1, 3, figsize=(13, 4))
for cell, (mix, path) in zip(axes, paths.items(), strict=False):
    cell.semilogx(strengths, path, marker=".")
    cell.set(xlabel="regParam", title="lasso" if mix else "ridge", ylabel="coefficient")
axes[0].legend(patients.feature_names, fontsize=7)

# scikit-learn's lasso of the same objective.
theirs = ElasticNet(alpha=1.0, l1_ratio=1.0, tol=1e-12, max_iter=100000).fit(x, patients.target)
np.testing.assert_allclose(paths[1.0][strengths.index(1.0)], theirs.coef_, atol=1e-4)
print("the lasso's coefficients are scikit-learn's")

# A few labels are far off: Huber's loss minds them less.
far = df.selectExpr("features", "label + if(rand(3) < 0.05, 2000, 0) as label").cache()
clean = LinearRegression().fit(df).coefficients.toArray()
for loss in ("squaredError", "huber"):
    fit = LinearRegression(loss=loss).fit(far)
    error = np.linalg.norm(fit.coefficients.toArray() - clean) / np.linalg.norm(clean)
    print(f"{loss:12} with outliers: coefficients {error:.0%} away from those without")

# Counts whose logarithm is linear.
counts = np.random.default_rng(1).poisson(np.exp(0.5 + 0.6 * x[:, 2] - 0.4 * x[:, 4]))
visits = spark.createDataFrame([(float(n), Vectors.dense(row)) for n, row in zip(counts, x[:, [2, 4]], strict=True)],
                               ["label", "features"]).repartition(2)
poisson = GeneralizedLinearRegression(family="poisson").fit(visits)
print(f"Poisson: intercept {poisson.intercept:.2f}, coefficients {poisson.coefficients.toArray().round(2)}, "
      f"{poisson.summary.numIterations} iterations")
means = np.exp(poisson.intercept + x[:, [2, 4]] @ poisson.coefficients.toArray())
axes[2].plot(means, counts, ".", alpha=0.4)
axes[2].plot([0, means.max()], [0, means.max()], "k")
axes[2].set(xlabel="expected", ylabel="counted", title="Poisson regression")
figure.tight_layout()
figure.savefig("regression.png", dpi=100)
