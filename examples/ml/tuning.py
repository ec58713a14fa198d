"""A search of parameters by cross-validation over a pipeline: one load of the data for all folds.

    python examples/ml/tuning.py    # 569 tumours that scikit-learn ships; writes tuning.png
"""

import matplotlib
import numpy as np
from pyspark.ml import Pipeline as PlainPipeline
from pyspark.ml import classification, feature, tuning
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_breast_cancer

import vispark.ml.classification
import vispark.ml.feature
import vispark.ml.tuning

matplotlib.use("Agg")
from matplotlib import pyplot as plt

STRENGTHS, SHARES, FOLDS = [0.3, 0.03, 0.003], [0.0, 0.5], 3
spark = SparkSession.builder.getOrCreate()
tumours = load_breast_cancer()
rows = [(float(benign), number % FOLDS, Vectors.dense(row)) for number, (benign, row)
        in enumerate(zip(tumours.target, tumours.data, strict=True))]
df = spark.createDataFrame(rows, ["label", "fold", "raw"]).repartition(2).cache()


def searched(learners, features, pipeline, search, strengths):
    """Return the model of the best parameters, and the mean metrics of all, with their deviations."""
    learner = learners.LogisticRegression(maxIter=8)
    stages = [features.StandardScaler(inputCol="raw", outputCol="features", withMean=True), learner]
    grid = tuning.ParamGridBuilder().addGrid(learner.regParam, strengths).addGrid(learner.elasticNetParam, SHARES)
    return search(estimator=pipeline(stages=stages), estimatorParamMaps=grid.build(), numFolds=FOLDS, foldCol="fold",
                  evaluator=BinaryClassificationEvaluator()).fit(df)


def jobs():
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


before = jobs()
model = searched(vispark.ml.classification, vispark.ml.feature, vispark.ml.Pipeline, vispark.ml.tuning.CrossValidator,
                 STRENGTHS)
ours, before = jobs() - before, jobs()
theirs = searched(classification, feature, PlainPipeline, tuning.CrossValidator, STRENGTHS[:1])
fits = FOLDS * len(STRENGTHS) * len(SHARES) + 1
print(f"{fits} fits and {fits - 1} evaluations took {ours} Spark jobs")
print(f"with pyspark.ml's estimators, {FOLDS * len(SHARES) + 1} fits and {FOLDS * len(SHARES)} evaluations took "
      f"{jobs() - before}")
np.testing.assert_allclose(model.avgMetrics[:len(SHARES)], theirs.avgMetrics, rtol=1e-6)
best = model.bestModel.stages[-1]
print(f"best: regParam {best.getRegParam()}, elasticNetParam {best.getElasticNetParam()}, "
      f"area under the curve {max(model.avgMetrics):.4f}")

means, deviations = (np.reshape(each, (len(STRENGTHS), len(SHARES))) for each in (model.avgMetrics, model.stdMetrics))
for place, share in enumerate(SHARES):
    plt.errorbar(STRENGTHS, means[:, place], deviations[:, place], marker="o", label=f"elasticNetParam {share}")
plt.xscale("log")
plt.xlabel("regParam")
plt.ylabel(f"area under the curve, {FOLDS} folds")
plt.legend()
plt.savefig("tuning.png", dpi=100)
