"""Features: scaled columns, principal components, and vectors of words.

    python examples/ml/features.py    # wines, and descriptions of data that scikit-learn ships; writes features.png
"""

import re

import matplotlib
import numpy as np
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from sklearn import datasets

from vispark.ml import Pipeline
from vispark.ml.feature import PCA, MaxAbsScaler, MinMaxScaler, StandardScaler, Word2Vec

matplotlib.use("Agg")
from matplotlib import pyplot as plt

spark = SparkSession.builder.getOrCreate()
wines = datasets.load_wine()
names = [re.sub(r"\W", "_", name) for name in wines.feature_names]
df = spark.createDataFrame(wines.data.tolist(), names).repartition(2).cache()

# Columns are put side by side as they are loaded, once; no stage's transform runs in the fit.
stages = [VectorAssembler(inputCols=names, outputCol="raw")]
scalers = {"standard": StandardScaler(withMean=True), "range": MinMaxScaler(), "greatest": MaxAbsScaler()}
for name, scaler in scalers.items():
    stages.append(scaler.setInputCol("raw").setOutputCol(name))
stages += [PCA(k=3, inputCol=name, outputCol=f"{name}_components") for name in ("raw", "standard")]
model = Pipeline(stages=stages).fit(df)
row = model.transform(df).first()
for name in ("raw", "standard", "range", "greatest"):
    print(f"{name:9}", " ".join(f"{value:8.3f}" for value in row[name].toArray()[:6]))
plain, scaled = (fit.explainedVariance.toArray() for fit in model.stages[-2:])
print(f"first component: {plain[0]:.1%} of the variance as it is, {scaled[0]:.1%} of scaled columns")
np.testing.assert_allclose(row["standard"].toArray(), ((wines.data - wines.data.mean(0)) / wines.data.std(0, ddof=1))[
    np.flatnonzero((wines.data == row["raw"].toArray()).all(axis=1))[0]], rtol=1e-9)

texts = " ".join(getattr(datasets, f"load_{name}")().DESCR for name in ("breast_cancer", "wine", "diabetes", "digits"))
sentences = [(re.findall("[a-z]{3,}", line.lower()),) for line in re.split(r"[.\n]{2,}|\. ", texts)]
words = spark.createDataFrame([line for line in sentences if line[0]], ["words"]).repartition(2)
vectors = Word2Vec(vectorSize=16, minCount=4, maxIter=60, stepSize=0.1, seed=1, inputCol="words").fit(words)
print(f"{vectors.getVectors().count()} words; near to 'cancer':",
      ", ".join(word for word, _ in vectors.findSynonymsArray("cancer", 4)))

figure, (bars, places) = plt.subplots(1, 2, figsize=(11, 4))
for shift, (name, shares) in enumerate((("as they are", plain), ("scaled", scaled))):
    bars.bar(np.arange(3) + 0.4 * shift, shares, 0.4, label=name)
bars.set(xlabel="component", ylabel="share of the variance", xticks=[0, 1, 2])
bars.legend()
points = np.array([row[0].toArray() for row in model.transform(df).select("standard_components").collect()])
places.scatter(points[:, 0], points[:, 1], c=points[:, 2], s=14)
places.set(xlabel="first component", ylabel="second component", title="wines, scaled; colour: the third component")
figure.tight_layout()
figure.savefig("features.png", dpi=100)
