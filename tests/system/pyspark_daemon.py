"""The server that Spark's Python workers are forked from, with what they import: each would else do it anew.

It is for tasks in the driver's JVM only. The other topologies have PySpark's own server.
"""

import gc
import sys
from zipimport import zipimporter

import pyspark.sql
import pyspark.worker
import pytest
from pyspark import daemon

import vispark

#: What tasks of tests need.
IMPORTED = pytest, vispark, pyspark.sql, pyspark.worker


def forget_archives() -> None:
    """Take Spark's archives off the path: PySpark 3.5 lets importers read what is in theirs anew in each task."""
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    forget_archives()
    gc.collect()
    gc.freeze()
    daemon.manager()
