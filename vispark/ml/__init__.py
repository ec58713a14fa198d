"""Estimators of ``pyspark.ml`` whose fits run in the workers, on data that stays on the devices.

The modules are those of ``pyspark.ml``: ``from vispark.ml.regression import LinearRegression`` in place of
``from pyspark.ml.regression import LinearRegression``. Parameters, models, summaries and persistence are pyspark's own.
``loads`` holds what DataFrames became on the devices, ``base`` the way of a fit, ``optim`` the optimisers.
"""

from vispark.ml.installation import install as install
from vispark.ml.installation import uninstall as uninstall
from vispark.ml.pipeline import Pipeline as Pipeline
