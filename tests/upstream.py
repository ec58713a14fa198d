"""Spark's own tests of ``pyspark.ml`` with vispark's estimators: ``python -m tests.upstream CHECKOUT [FILE...]``.

FILE is as in ``FILES``, or ``FILE:TEST`` for one test of it.

They are in Spark's repository alone, neither in PySpark's wheel nor in its sdist, and are not copied into this one.
CHECKOUT is Spark's source, best at the tag of the PySpark that is installed. Fits run on the ``host`` device; what
differs on purpose is named in ``DIFFERENCES``. The exit status is 0 where nothing else fails, and no name there has
passed. ``--plain`` before CHECKOUT runs them with pyspark's own estimators: what fails then is none of vispark's.

Default seeds are hashes of classes' names, and Spark's commands set ``PYTHONHASHSEED=0``: so does this one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyspark.ml

from vispark.errors import FallbackWarning
from vispark.ml.installation import install

#: Files that meet estimators of vispark's.
FILES = ("test_algorithms", "test_als", "test_classification", "test_clustering", "test_evaluation", "test_feature",
         "test_ovr", "test_param", "test_persistence", "test_pipeline", "test_regression", "test_training_summary",
         "test_tuning", "test_wrapper", "tuning/test_tuning",
         "tuning/test_cv_io_basic", "tuning/test_cv_io_nested", "tuning/test_cv_io_pipeline",
         "tuning/test_tvs_io_basic", "tuning/test_tvs_io_nested", "tuning/test_tvs_io_pipeline")

#: Tests whose outcome differs, by class (in Spark 3.5 and 4) and name, and why.
DIFFERENCES = dict.fromkeys(
    [f"{each}.test_multinomial_logistic_regression_with_bound"
     for each in ("LogisticRegressionTest", "ClassificationTests")],
    "the optimum within bounds has more digits: the objective is 2.2e-9 below, coefficients are 4e-4 away")
DIFFERENCES["ClusteringTests.test_kmeans"] = (
    "first centres are other draws than MLlib's, and the optimum here: one of Lloyd's steps is taken for MLlib's two")


def suite(folder: Path, files: tuple[str, ...]) -> unittest.TestSuite:
    """Return the tests of some files; those of Spark Connect are not among them."""
    collected = unittest.TestSuite()
    for name in files:
        name, _, only = name.partition(":")
        path = folder / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"upstream.{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        tests = unittest.defaultTestLoader.loadTestsFromModule(module)
        collected.addTests(test for test in _each(tests) if not only or _name(test).endswith(f".{only}"))
    return collected


def _each(tests: unittest.TestSuite) -> Iterator[Any]:
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from _each(test)
        else:
            yield test


def _name(test: Any) -> str:
    return ".".join(str(test.id()).split(".")[-2:])


def main(checkout: str, *files: str, is_plain: bool = False) -> int:
    """Run the tests, of pyspark's own estimators if plain, and print their figures; return the exit status."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.vispark.device=host --conf spark.ui.enabled=false pyspark-shell"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(checkout).resolve() / "python/pyspark/ml/tests"
    # The tests import each other from the package that wheels do not have.
    pyspark.ml.__path__.append(str(folder.parent))
    # PySpark 3.5 asks NumPy for names that NumPy 2 does not have.
    for name, value in {"NaN": np.nan, "string_": np.bytes_, "unicode_": np.str_}.items():
        vars(np).setdefault(name, value)
    # They read Spark's sample data by paths within the checkout.
    os.chdir(checkout)
    here = files or tuple(name for name in FILES if (folder / f"{name}.py").exists())
    replaced = [] if is_plain else install()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FallbackWarning)
        tests = suite(folder, here)
        run = {_name(test) for test in _each(tests)}
        outcome = unittest.TextTestRunner(verbosity=2).run(tests)
    failed = {_name(test) for test, _ in (*outcome.failures, *outcome.errors)}
    for warning in warned:
        if issubclass(warning.category, FallbackWarning):
            print(f"left to MLlib: {warning.message}")
    unexpected, passed = sorted(failed - DIFFERENCES.keys()), sorted((DIFFERENCES.keys() & run) - failed)
    print(f"{len(here)} files, {len(replaced)} names replaced; unexpected: {unexpected}; no longer different: {passed}")
    print(f"{outcome.testsRun - len(failed)} passed, {len(failed)} failed, {len(outcome.skipped)} skipped")
    return 1 if unexpected or passed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.upstream", *sys.argv[1:]])
    sys.exit(main(*(each for each in sys.argv[1:] if each != "--plain"), is_plain="--plain" in sys.argv))
