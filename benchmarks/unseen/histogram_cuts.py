"""Decision stump: counts of labels on both sides of thresholds, by aggregate."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
rng = np.random.default_rng(6)
values = rng.normal(size=(4000, 3))
labels = (values[:, 1] + 0.3 * rng.normal(size=4000) > 0.4).astype(float)
data = sc.parallelize(list(np.column_stack([labels, values])), 4).cache()
best = (0.0, None)
for column in range(1, 4):
    for threshold in np.linspace(-1.0, 1.0, 5):
        right, wrong = data.aggregate(
            (0.0, 0.0),
            lambda t, row: (t[0] + (1.0 if (row[column] > threshold) == (row[0] > 0.5) else 0.0),
                            t[1] + (0.0 if (row[column] > threshold) == (row[0] > 0.5) else 1.0)),
            lambda a, b: (a[0] + b[0], a[1] + b[1]))
        if right / (right + wrong) > best[0]:
            best = (right / (right + wrong), (column, float(threshold)))
print(best)
