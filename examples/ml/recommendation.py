"""Ratings of films completed by alternating least squares, beside MLlib's, from the same first factors.

    python examples/ml/recommendation.py    # ratings that are made here; writes recommendation.png
"""

import matplotlib
import numpy as np
from pyspark.ml import recommendation as mllib
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.sql import SparkSession

from vispark.ml.recommendation import ALS

matplotlib.use("Agg")
from matplotlib import pyplot as plt

USERS, FILMS, TASTES = 120, 60, 3
spark = SparkSession.builder.getOrCreate()
rng = np.random.default_rng(1)
truth = 3 + rng.normal(size=(USERS, TASTES)) @ rng.normal(size=(TASTES, FILMS)) / 2
seen = np.argwhere(rng.random(truth.shape) < 0.3)
rows = [(int(u), int(f), float(truth[u, f] + rng.normal() / 5)) for u, f in seen]
train, test = spark.createDataFrame(rows, ["user", "item", "rating"]).repartition(2).cache().randomSplit([0.8, 0.2], 1)
test = test.cache()

evaluator = RegressionEvaluator(labelCol="rating")
iterations = [1, 2, 3, 5, 8]
errors = []
for times in iterations:
    # All fits are of one load; each half of an iteration is a pass.
    model = ALS(rank=TASTES + 1, maxIter=times, regParam=0.05, seed=2, coldStartStrategy="drop").fit(train)
    errors.append(evaluator.evaluate(model.transform(test)))
    print(f"{times} iterations: error {errors[-1]:.3f} of ratings that were not seen")

theirs = mllib.ALS(rank=TASTES + 1, maxIter=iterations[-1], regParam=0.05, seed=2, coldStartStrategy="drop").fit(train)
error = evaluator.evaluate(theirs.transform(test))
assert abs(error - errors[-1]) < 1e-4
print(f"MLlib's error after {iterations[-1]} iterations: {error:.3f}")
best = model.recommendForUserSubset(test.filter("user = 7").select("user").distinct(), 3).first()
print("for user 7:", ", ".join(f"film {film.item} ({film.rating:.1f})" for film in best.recommendations))

factors = [np.array([row.features for row in table.orderBy("id").collect()])
           for table in (model.userFactors, model.itemFactors)]
found = factors[0] @ factors[1].T
given = np.full(truth.shape, np.nan)
for user, film, rating in rows:
    given[user, film] = rating
figure, (curve, *maps) = plt.subplots(1, 4, figsize=(13, 4))
curve.plot(iterations, errors, marker="o")
curve.axhline(error, color="k", linestyle=":")
curve.set(xlabel="iterations", ylabel="error", title="dotted: MLlib")
for cell, table, name in zip(maps, (given, found, truth), ("ratings", "completed", "truth"), strict=True):
    cell.imshow(table, vmin=1, vmax=5, aspect="auto", interpolation="none")
    cell.set(title=name, xlabel="film", ylabel="user")
figure.tight_layout()
figure.savefig("recommendation.png", dpi=100)
