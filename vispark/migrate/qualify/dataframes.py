"""Answers for programs without RDDs: what of DataFrames, SQL, MLlib and Spark Connect vispark has something for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vispark.migrate.source.program import SourceProgram

#: Estimators of ``pyspark.ml`` whose fits ``vispark.ml`` has, by their module; a test compares them with that package.
ESTIMATORS = {
    "LogisticRegression": "classification", "LinearSVC": "classification", "FMClassifier": "classification",
    "KMeans": "clustering", "BisectingKMeans": "clustering", "GaussianMixture": "clustering",
    "LinearRegression": "regression", "GeneralizedLinearRegression": "regression", "FMRegressor": "regression",
    "PCA": "feature", "StandardScaler": "feature", "MinMaxScaler": "feature", "MaxAbsScaler": "feature",
    "ALS": "recommendation"}
_UDFS = frozenset(["udf", "pandas_udf"])
_BLOCKS = frozenset(["mapInPandas", "mapInArrow", "applyInPandas", "applyInArrow", "foreachPartition"])
_CONNECT = "Spark Connect has no RDDs, so that workers can keep nothing: a session without remote(...) has them"


def answers(program: SourceProgram) -> Iterator[str]:
    """Yield lines on a program in which there is no operation of an RDD, the conclusion first.

    Examples
    --------
    >>> text = "f = udf(lambda x: x * 2, 'double')\\nspark.range(9).select(f('id')).show()"
    >>> for each in answers(SourceProgram("job.py", text)):
    ...     print(each)
    no operation of an RDD: DataFrames and SQL stay with Spark, whose engine is the JVM; this is what else there is
      line 1: udf: @vispark.udf("double") translates the function of a row, where its columns are numbers
    numbers that loops go over: vispark.from_dataframe(frame, columns) makes an RDD, cache("GPU") keeps it
    """
    lines = sorted(set(_lines(program)))
    what = "this is what else there is" if lines else "nothing of it gains"
    yield ("no operation of an RDD: DataFrames and SQL stay with Spark, whose engine is the JVM; "
           f"{what}") if _has_frames(program) else "no operation of an RDD was found, nor of a DataFrame"
    yield from (f"  line {line}: {text}" for line, text in lines)
    if _has_frames(program):
        yield ("numbers that loops go over: vispark.from_dataframe(frame, columns) makes an RDD, "
               'cache("GPU") keeps it')


def _has_frames(program: SourceProgram) -> bool:
    return any(isinstance(node, ast.Call) and program.kind(node) in ("frame", "session", "reader")
               for node in ast.walk(program.tree))


def _lines(program: SourceProgram) -> Iterator[tuple[int, str]]:
    of_mllib = {each.name for node in ast.walk(program.tree) if isinstance(node, ast.ImportFrom) and (
        node.module or "").startswith("pyspark.ml") for each in node.names if each.name in ESTIMATORS}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                decorator_name = _name(decorator.func if isinstance(decorator, ast.Call) else decorator)
                if decorator_name in _UDFS:
                    yield node.lineno, _of_udf(decorator_name)
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if name in _UDFS and not _is_decorator(program, node):
                yield node.lineno, _of_udf(name)
            elif name in _BLOCKS and isinstance(node.func, ast.Attribute):
                yield node.lineno, (f"{name}: its function is of blocks, in Python; one of a row, of numbers, is "
                                    "one for vispark.with_column")
            elif name in of_mllib:
                yield node.lineno, (f"{name}: that of vispark.ml.{ESTIMATORS[name]} fits in the workers, with the same "
                                    "parameters and models")
            elif name == "remote" and isinstance(node.func, ast.Attribute):
                yield node.lineno, _CONNECT


def _of_udf(name: str) -> str:
    return f'{name}: @vispark.udf("double") translates the function of a row, where its columns are numbers'


def _is_decorator(program: SourceProgram, node: ast.Call) -> bool:
    above = program.parent(node)
    return isinstance(above, ast.FunctionDef) and node in above.decorator_list


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
