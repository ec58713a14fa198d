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
    # Each name that is looked up in the JVM is a call into it: they are looked up once.
    pair, array_list, to_seq = jvm.scala.Tuple2, jvm.java.util.ArrayList, jvm.PythonUtils.toSeq
    pairs, places = array_list(), {}
    for share, near in zip(shares, map(tuple, hosts), strict=True):
        if near not in places:
            names = array_list()
            for host in near:
                names.add(host)
            places[near] = to_seq(names)
        pairs.add(pair(pickled.dumps(share), places[near]))
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
    java = sc._jsc.sc().makeRDD(to_seq(pairs), tag)
    return RDD(java.toJavaRDD(), sc, pickled)
