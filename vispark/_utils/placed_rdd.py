"""RDDs whose tasks Spark runs where they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer


def placed(sc: SparkContext, shares: Sequence[Any], hosts: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD with a partition for each share, whose task Spark runs on one of its hosts if it can; each has the
    one record.

    ``executor_HOST_ID`` in place of a host is an executor.
    """
    sc = cast(Any, sc.parallelize).__self__     # the context itself, where this is a weak proxy of it
    if not any(hosts):
        return sc.parallelize(shares, len(shares))
    assert sc._jvm is not None
    pickled, jvm = CPickleSerializer(), sc._jvm
    pairs = jvm.java.util.ArrayList()
    for share, near in zip(shares, hosts, strict=True):
        names = jvm.java.util.ArrayList()
        for host in near:
            names.add(host)
        pairs.add(jvm.scala.Tuple2(pickled.dumps(share), _seq(sc, names)))
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
    made = sc._jsc.sc().makeRDD(_seq(sc, pairs), tag)
    return RDD(made.toJavaRDD(), sc, pickled)


def _seq(sc: SparkContext, values: Any) -> Any:
    assert sc._jvm is not None
    return sc._jvm.PythonUtils.toSeq(values)
