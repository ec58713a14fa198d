"""The server that Spark's Python workers are forked from, with what they import: each would else do it anew.

It is for tasks in the driver's JVM only. The other topologies have PySpark's own server.
"""

import gc
import os
import sys
from importlib import import_module
from zipimport import zipimporter

import pyspark.sql
import pyspark.worker
import pytest
from pyspark import daemon

import vispark
from vispark.api import received_rdd
from vispark.runtime.executor import tasks
from vispark.translate import fusion

#: What tasks of tests need. Without it each worker, of which a file's tests use up ten or more, imports for 0.3 s.
IMPORTED = pytest, pyspark.sql, pyspark.worker, vispark, received_rdd, tasks, fusion
#: What tasks of a file's tests need beside it: modules, with blanks between.
FURTHER = "VISPARK_TEST_IMPORTS"


def forget_archives() -> None:
    """Take Spark's archives off the path: PySpark 3.5 lets importers read what is in theirs anew in each task."""
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    forget_archives()
    for name in os.environ.get(FURTHER, "").split():
        import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()
