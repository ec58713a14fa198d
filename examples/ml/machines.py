"""Factorization machines and a support vector machine on points of which only products of features tell the classes.

    python examples/ml/machines.py    # 1,000 drawn points; writes machines.png
"""

import matplotlib
import numpy as np
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

from vispark.ml.classification import FMClassifier, LinearSVC
from vispark.ml.regression import FMRegressor

matplotlib.use("Agg")
from matplotlib import pyplot as plt

spark = SparkSession.builder.getOrCreate()
rng = np.random.default_rng(7)
x = rng.uniform(-1, 1, (1000, 2))
products = 2 * x[:, 0] * x[:, 1] + 0.3 * x[:, 0]
rows = [(float(y > 0), float(y), Vectors.dense(row)) for y, row in zip(products, x, strict=True)]
df = spark.createDataFrame(rows, ["label", "y", "features"]).repartition(2).cache()

# One load serves both classifiers: they need the same columns.
models = {"support vectors": LinearSVC(regParam=0.01, maxIter=50).fit(df),
          "factorization machine": FMClassifier(factorSize=2, initStd=0.1, stepSize=0.1, maxIter=60, seed=1).fit(df)}
evaluator, areas = BinaryClassificationEvaluator(), {}
for name, model in models.items():
    areas[name] = evaluator.evaluate(model.transform(df))
    print(f"{name}: area under the curve {areas[name]:.4f}")
assert areas["factorization machine"] > 0.99 > areas["support vectors"]

steps = [1, 5, 15, 40, 100]
machines = [FMRegressor(labelCol="y", factorSize=2, initStd=0.1, stepSize=0.1, maxIter=most, seed=1).fit(df)
            for most in steps]
errors = []
for most, machine in zip(steps, machines, strict=True):
    factor = np.prod(machine.factors.toArray(), axis=0).sum()
    found = machine.intercept + x @ machine.linear.toArray() + factor * x[:, 0] * x[:, 1]
    errors.append(np.sqrt(np.mean((found - products) ** 2)))
    print(f"regression after {most:3} steps: error {errors[-1]:.4f}, the product's factor {factor:.3f}")
np.testing.assert_allclose([factor, machine.linear[0]], [2, 0.3], atol=0.02)
print("the factors are those that the points were made with")

figure, (plane, way) = plt.subplots(1, 2, figsize=(10, 4))
mesh = np.stack(np.meshgrid(*[np.linspace(-1, 1, 80)] * 2), axis=-1)
classes = models["factorization machine"]
factor = np.prod(classes.factors.toArray(), axis=0).sum()
margins = classes.intercept + mesh @ classes.linear.toArray() + factor * mesh.prod(axis=-1)
plane.contourf(mesh[..., 0], mesh[..., 1], margins, levels=[-99, 0, 99], cmap="coolwarm", alpha=0.4)
plane.scatter(*x.T, c=products > 0, s=5, cmap="coolwarm")
line = models["support vectors"]
plane.contour(mesh[..., 0], mesh[..., 1], mesh @ line.coefficients.toArray() + line.intercept, levels=[0])
plane.set(title="classes of the machine, and the line of support vectors")
way.loglog(steps, errors, marker=".")
way.set(xlabel="steps", ylabel="root mean square error", title="regression")
figure.tight_layout()
figure.savefig("machines.png", dpi=100)
