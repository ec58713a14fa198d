"""PageRank over a matrix: a record is a page's row of the transition matrix."""

import numpy as np
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
PAGES = 300
links = np.random.default_rng(17).random((PAGES, PAGES)) < 0.03
links[:, 0] = True
transition = (links / links.sum(axis=1)[:, None]).T
pages = sc.parallelize(list(transition), 4).cache()
ranks = np.full(PAGES, 1.0 / PAGES)
for _ in range(10):
    ranks = 0.15 / PAGES + 0.85 * np.array(pages.map(lambda row: np.dot(row, ranks)).collect())
print(ranks[:5], ranks.sum())
