"""Logistic regression on scaled features of tumours: coefficients by regularisation, and receiver operating curves.

    python examples/ml/classification.py    # 569 tumours that scikit-learn ships; writes classification.png
"""

import matplotlib
import numpy as np
from pyspark.ml import classification as mllib
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_breast_cancer

from vispark.ml import Pipeline
from vispark.ml.classification import LogisticRegression
from vispark.ml.feature import StandardScaler

matplotlib.use("Agg")
from matplotlib import pyplot as plt

spark = SparkSession.builder.getOrCreate()
tumours = load_breast_cancer()
rows = [(float(benign), Vectors.dense(row)) for benign, row in zip(tumours.target, tumours.data, strict=True)]
train, test = spark.createDataFrame(rows, ["label", "raw"]).repartition(2).cache().randomSplit([0.7, 0.3], seed=1)

# Scaler and regression share one load; the scaled features are computed in the regression's passes.
learner = LogisticRegression(elasticNetParam=0.5)
pipeline = Pipeline(stages=[StandardScaler(inputCol="raw", outputCol="features", withMean=True), learner])
strengths = [0.3, 0.1, 0.03, 0.01]
models = pipeline.fit(train, [{learner.regParam: strength} for strength in strengths])
evaluator = BinaryClassificationEvaluator()

figure, (path, curve) = plt.subplots(1, 2, figsize=(10, 4))
path.semilogx(strengths, [model.stages[1].coefficients.toArray() for model in models], marker=".")
path.set(xlabel="regParam", ylabel="coefficient of a scaled feature", title=f"{tumours.data.shape[1]} features")
for strength, model in zip(strengths, models, strict=True):
    fit = model.stages[1]
    area = evaluator.evaluate(model.transform(test))
    print(f"regParam {strength:4}: {np.count_nonzero(fit.coefficients):2} features, area under the curve {area:.4f}, "
          f"{fit.summary.totalIterations:2} iterations")
    roc = np.array(fit.summary.roc.collect())
    curve.plot(*roc.T, label=f"regParam {strength}")
curve.set(xlabel="false positives", ylabel="true positives", title="training rows", xlim=(-0.01, 0.3))
curve.legend()
figure.tight_layout()
figure.savefig("classification.png", dpi=100)

# MLlib's own regression on what the fitted scaler gives.
scaled = models[-1].stages[0].transform(train)
theirs = mllib.LogisticRegression(elasticNetParam=0.5, regParam=strengths[-1]).fit(scaled)
np.testing.assert_allclose(theirs.coefficients.toArray(), models[-1].stages[1].coefficients.toArray(), atol=1e-6)
print("the coefficients are MLlib's")
