"""The server that Spark's Python workers are forked from, with what they import: each would else do it anew.

It is for tasks in the driver's JVM only. The other topologies have PySpark's own server.
"""

import gc

import pyspark.sql
import pyspark.worker
import pytest
from pyspark import daemon

import vispark

#: What tasks of tests need.
IMPORTED = pytest, vispark, pyspark.sql, pyspark.worker

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()
