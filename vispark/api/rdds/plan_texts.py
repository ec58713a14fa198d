"""Texts of a VRDD's plan: what ``explain`` and ``toDebugString`` show."""

from __future__ import annotations

from typing import Any

from vispark._utils.displays import Explanation
from vispark.api.rdds.explain import Explained, content_of
from vispark.api.rdds.explain import explain as describe_plan
from vispark.api.rdds.recorded_rdd import RecordedRDD
from vispark.plan import ops
from vispark.plan.fold.lowering import ByKey
from vispark.runtime.driver.session import Session


def explain(vrdd: RecordedRDD, *, schema: Any = None, sources: bool = False) -> None:
    """Print the plan, the workers' steps and kernels, and the content that workers hold already.

    Parameters
    ----------
    schema : (shape, dtype), or dict of them by field, optional
        What a record (or, of two dimensions or more, a block) looks like, for a plan whose data is not there yet.
    sources : bool
        Whether to show the kernels' sources.

    Raises
    ------
    PlanError
        If ``schema`` is none.

    See Also
    --------
    VRDD.explanation

    Examples
    --------
    >>> doubled = sc.parallelize([1.0, 2.0]).cache("GPU").vmap(lambda x: 2 * x)
    >>> doubled.explain(schema=((), "float64"))             # doctest: +ELLIPSIS
    == Plan ==
    vmap lambda
      htod  [cached as VRDD ... on device]
        send
    == Rewritten plan ==
    Load(...)
    ToDevice
    Exec(vmap lambda)
    Fetch
    == Kernels ==
    ...
    """
    print(explanation(vrdd, schema=schema, sources=sources))


def explanation(vrdd: RecordedRDD, *, schema: Any = None, sources: bool = False) -> Explanation:
    """Return the text that :meth:`explain` prints; notebooks show it with its sections.

    Parameters
    ----------
    schema : optional
        Shapes and dtypes of the records, as :meth:`explain` takes them.
    sources : bool
        Whether the text has the kernels' sources.

    Returns
    -------
    str
        Of several lines, in sections that begin with lines such as ``== Plan ==``.

    Raises
    ------
    PlanError
        If ``schema`` is none.

    Examples
    --------
    >>> "lambda" in sc.parallelize([1.0]).cache("GPU").vmap(lambda x: 2 * x).explanation()
    True
    """
    return explained(vrdd, "", schema, sources)


def toDebugString(vrdd: RecordedRDD) -> bytes:
    """Return the plan, and below it the lineage of the RDD that :meth:`recv` gives.

    Returns
    -------
    bytes
        Of UTF-8, as PySpark's.

    Examples
    --------
    >>> "vmap" in sc.parallelize([1.0, 2.0, 4.0], 2).cache("GPU").vmap(abs).toDebugString().decode()
    True
    """
    return ops.describe(vrdd._chain()).encode() + b"\n" + (vrdd.recv().toDebugString() or b"")


def explained(vrdd: RecordedRDD, by_key: ByKey | str, schema: Any, sources: bool) -> Explanation:
    """Return the text of ``explain`` for this VRDD, with the ``reduceByKey`` behind it or why that is a Spark job."""
    folds, requests = ({}, {}) if by_key else (vrdd._folds, vrdd._requests)
    request = Explained(vrdd._chain(), vrdd.getNumPartitions(), folds, content_of(schema), sources, by_key, requests)
    return describe_plan(Session.of(vrdd.ctx), request)
