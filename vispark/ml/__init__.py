"""Estimators of ``pyspark.ml`` whose fits run in the workers, on data that stays on the devices.

The modules are those of ``pyspark.ml``: ``from vispark.ml.regression import LinearRegression`` in place of
``from pyspark.ml.regression import LinearRegression``. Parameters, models, summaries and persistence are pyspark's own;
modules and names that vispark has nothing for, as ``stat`` and ``linalg``, are pyspark's, too.
``loads`` holds what DataFrames became on the devices, ``base`` the way of a fit, ``optim`` the optimisers.

Place 7 of 8 in the order of the data; run by: driver.
"""

from typing import Any

from pyspark import ml as _pyspark_ml

from vispark.ml import names as _names
from vispark.ml.installation import install as install
from vispark.ml.installation import uninstall as uninstall
from vispark.ml.pipeline import Pipeline as Pipeline

_names.share_modules()


def __getattr__(name: str) -> Any:
    return _names.of_pyspark(_pyspark_ml, name)
