"""Folds by functions of two records: recognition of those that kernels can run, and their lowering.

``spec`` reads what a function does; ``inside`` says what ``vreduce`` makes of a record, ``lowering`` what the folds of
whole VRDDs ask of the workers and make of their answers. Nothing here knows Spark.
"""

from vispark.plan.fold.reading import Leaf
from vispark.plan.fold.spec import FoldSpec, fold_for_kernel, fold_of

__all__ = ["FoldSpec", "Leaf", "fold_for_kernel", "fold_of"]
