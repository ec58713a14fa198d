"""Consensus of four hospitals on one logistic regression: ADMM, of which the residuals and the coefficients are drawn.

    python examples/ml/consensus.py    # 569 tumours that scikit-learn ships; writes consensus.png
"""

import matplotlib
import numpy as np
from pyspark import SparkContext
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import vispark  # noqa: F401 - RDDs have cache("GPU")
from vispark.ml.optim.admm import consensus, losses_by_part

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HOSPITALS, L2 = 4, 10.0
tumours = load_breast_cancer()
x = (tumours.data[:, :10] - tumours.data[:, :10].mean(axis=0)) / tumours.data[:, :10].std(axis=0)
signs = 2.0 * tumours.target - 1
# Each hospital has the tumours of one range of radii, so that by itself it learns something else.
hospitals = np.argsort(np.argsort(x[:, 0])) * HOSPITALS // len(x)
records = [{"x": row, "y": sign, "part": int(part)} for row, sign, part in zip(x, signs, hospitals, strict=True)]
held = SparkContext.getOrCreate().parallelize(records, 2).cache("GPU")


def logistic(x, y, part, w):
    margin = y * np.dot(w[part], x)
    return part, (np.logaddexp(0.0, -margin), -y / (1 + np.exp(margin)) * x)


# Each evaluation, of all hospitals at once, is a pass; their points and gradients are all that leaves the workers.
losses = losses_by_part(held, logistic, HOSPITALS)
steps = [1, 3, 10, 30, 100]
found = [consensus(losses, HOSPITALS, x.shape[1], l2=L2, iterations=most, tolerance=1e-7) for most in steps]
expected = LogisticRegression(C=1 / L2, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, tumours.target).coef_[0]
for most, one in zip(steps, found, strict=True):
    print(f"at most {most:3} averages: {one.passes:4} passes, hospitals are {one.residuals.max():.1e} from the mean, "
          f"that is {np.linalg.norm(one.x - expected):.1e} from scikit-learn's")
np.testing.assert_allclose(found[-1].x, expected, atol=1e-4)
print("the consensus is scikit-learn's regression of all tumours")

figure, (ways, bars) = plt.subplots(1, 2, figsize=(10, 4))
passes = [one.passes for one in found]
ways.loglog(passes, [one.residuals.max() for one in found], marker=".", label="hospital furthest from the mean")
ways.loglog(passes, [np.linalg.norm(one.x - expected) for one in found], marker=".", label="mean from the optimum")
ways.set(xlabel="passes over the data", title="residuals")
ways.legend()
alone = [LogisticRegression(C=HOSPITALS / L2, fit_intercept=False, max_iter=1000).fit(
    x[hospitals == part], tumours.target[hospitals == part]).coef_[0] if len(set(tumours.target[hospitals == part])) > 1
    else np.zeros(x.shape[1]) for part in range(HOSPITALS)]
for part, one in enumerate(alone):
    bars.plot(one, ".", label=f"hospital {part} alone")
bars.plot(found[-1].x, "k_", markersize=12, label="consensus")
bars.set(title="coefficients", xticks=range(x.shape[1]))
bars.set_xticklabels([name[5:] for name in tumours.feature_names[:10]], rotation=60, ha="right")
bars.legend()
figure.tight_layout()
figure.savefig("consensus.png", dpi=100)
