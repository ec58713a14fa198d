"""Heat along a rod by joins with neighbours: keys are cells, which Spark moves."""

from pyspark import SparkContext

sc = SparkContext.getOrCreate()
cells = sc.parallelize([(i, 100.0 if 40 <= i < 60 else 0.0) for i in range(100)], 4)
for step in range(3):
    moved = cells.flatMap(lambda c: [(c[0] - 1, 0.25 * c[1]), (c[0], 0.5 * c[1]), (c[0] + 1, 0.25 * c[1])])
    cells = moved.reduceByKey(lambda a, b: a + b, 4).filter(lambda c: 0 <= c[0] < 100)
print(sorted(cells.collect())[40:44])
