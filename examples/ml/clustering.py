"""K-means, bisecting K-means and a mixture of Gaussian densities on wines of three cultivars.

    python examples/ml/clustering.py    # 178 wines that scikit-learn ships; writes clustering.png
"""

import matplotlib
import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from vispark.ml import Pipeline
from vispark.ml.clustering import BisectingKMeans, GaussianMixture, KMeans
from vispark.ml.feature import PCA, StandardScaler

matplotlib.use("Agg")
from matplotlib import pyplot as plt

spark = SparkSession.builder.getOrCreate()
wines = load_wine()
rows = [(int(kind), Vectors.dense(row)) for kind, row in zip(wines.target, wines.data, strict=True)]
df = spark.createDataFrame(rows, ["kind", "raw"]).repartition(2).cache()
components = [StandardScaler(inputCol="raw", outputCol="scaled"),
              PCA(k=2, inputCol="scaled", outputCol="features")]

figure, axes = plt.subplots(1, 4, figsize=(15, 3.8), sharey=True)
found = {}
for learner in (KMeans(k=3, seed=1), BisectingKMeans(k=3, seed=1), GaussianMixture(k=3, seed=1, maxIter=60)):
    model = Pipeline(stages=[*components, learner]).fit(df)
    rows = model.transform(df).select("kind", "features", "prediction").collect()
    places = np.array([row.features.toArray() for row in rows])
    kinds, groups = (np.array([row[name] for row in rows]) for name in ("kind", "prediction"))
    name = type(learner).__name__
    found[name] = adjusted_rand_score(kinds, groups)
    cell = axes[len(found)]
    cell.scatter(*places.T, c=groups, s=12, cmap="viridis")
    if hasattr(model.stages[-1], "clusterCenters"):
        cell.scatter(*np.array(model.stages[-1].clusterCenters()).T, c="r", marker="x")
    else:
        cell.scatter(*np.array([each.mean.toArray() for each in model.stages[-1].gaussians]).T, c="r", marker="x")
    cell.set(title=f"{name}: {found[name]:.2f}", xlabel="first component")
    print(f"{name:16} adjusted Rand index {found[name]:.3f}, sizes {sorted(model.stages[-1].summary.clusterSizes)}")
axes[0].scatter(*places.T, c=kinds, s=12, cmap="viridis")
axes[0].set(title="cultivars", xlabel="first component", ylabel="second component")
figure.tight_layout()
figure.savefig("clustering.png", dpi=100)
assert found["KMeans"] > 0.8 and min(found.values()) > 0.5
print("the groups of K-means are the cultivars, but for a few wines")
