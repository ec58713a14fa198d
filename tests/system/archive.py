"""An archive of Spark's classes, with which a JVM starts with half of the work: Java's class-data sharing (JEP 350).

It is made once for each version of Spark and of Java, and kept with the user's caches.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pyspark
from pyspark.find_spark_home import _find_spark_home

#: "no" where so few JVMs start that the archive would cost more than it saves.
WANTED = "VISPARK_TEST_ARCHIVE"
#: What makes a JVM quick to start rather than quick to run. With one compiler it has room for 48 MB of compiled code,
#: unless it is told to have more, and tests of SQL and MLlib fill these: code is thrown out then, and compiled again.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
#: Options that Java's launcher takes from the environment, before those of the command line.
_OPTIONS = "JDK_JAVA_OPTIONS"
#: Seconds that making the archive may take on a busy machine.
_PATIENCE = 300.0

# A cluster inside the driver's JVM loads the classes of a master and of a worker as well.
_PROGRAM = """\
from pyspark import SparkContext
sc = SparkContext("local-cluster[1,1,1024]", "archive")
sc.parallelize(range(4), 2).map(lambda x: (x, x)).reduceByKey(max).collect()
gateway = sc._gateway
sc.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def quicken() -> None:
    """Let every JVM that this process starts from now on, and what it starts, begin quickly: also Spark's launcher, and
    those of programs that know nothing of the tests.
    """
    os.environ[_OPTIONS] = f"{QUICK} {options()}".rstrip()


@functools.cache
def options() -> str:
    """Return the options that make a JVM use the archive; none where this Java cannot make one, or none is wanted."""
    if os.environ.get(WANTED) == "no":
        return ""
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    key = hashlib.sha256("\n".join([version, pyspark.__version__, _find_spark_home()]).encode()).hexdigest()[:16]
    directory = Path(platformdirs.user_cache_dir("vispark-tests", ensure_exists=True))
    archive = directory / f"spark-{key}.jsa"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    # A JVM that cannot use it says so where Spark's scripts read its output, unless it is told not to.
    is_made = archive.stat().st_size > 0
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr" if is_made else ""


def _make(archive: Path) -> None:
    """Make an archive; an empty file, where this Java cannot, so that it is tried once."""
    partial = archive.with_suffix(".new")
    arguments = ("--conf spark.ui.enabled=false "
                 f'--conf "spark.executor.extraJavaOptions={QUICK}" '
                 f'--driver-java-options "{QUICK} -XX:ArchiveClassesAtExit={partial}" pyspark-shell')
    subprocess.run([sys.executable, "-c", _PROGRAM], env=os.environ | {"PYSPARK_SUBMIT_ARGS": arguments},
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_PATIENCE,
                   check=False)
    if not partial.exists():
        partial.touch()
    partial.rename(archive)
