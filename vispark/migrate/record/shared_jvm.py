"""JVM of Spark's that several runs of a program share: the first run starts it, and the others connect to it.

A JVM takes as much processor time to start and to compile as a small program takes to run. Each run has a Python
process and a SparkContext of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark import SparkContext

from vispark.migrate.errors import ValidationError, error_line

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
#: Descriptor of the pipe to which a first run writes where its JVM is.
_PIPE = "VISPARK_MIGRATE_PIPE"
#: Settings of one run that the next ones do not have.
_OF_ONE_RUN = ("spark.eventLog.enabled", "spark.vispark.journal")


@dataclass(frozen=True)
class JvmGateway:
    """Port and secret by which PySpark reaches a JVM that runs already."""

    port: int
    secret: str

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process that is to connect to it, over those of a process that would start one."""
        return {**settings, _PORT: str(self.port), _SECRET: self.secret}


@dataclass(frozen=True)
class FirstRun:
    """First run of a program.

    Attributes
    ----------
    results : Path
        File of its results.
    jvm : JvmGateway or None
        The JVM that it left, if it started one.
    failed : str
        How it ended, unless it did so well.
    """

    results: Path
    jvm: JvmGateway | None
    failed: str = ""


@contextmanager
def process_with_jvm(script: Path, command: Sequence[str], environment: Mapping[str, str], log: Path,
                     timeout: float | None = None, is_kept: bool = True) -> Iterator[JvmGateway | None]:
    """Run a program to its end in a process whose JVM stays for the block; what it prints goes to a file.

    Parameters
    ----------
    script : Path
        The program, for messages.
    command : sequence of str
        A module of vispark that ends by :func:`offer_jvm`, and its arguments.
    environment : mapping
        The process's variables.
    log : Path
        The file, for its owner alone.
    timeout : float, optional
        Seconds for the program.
    is_kept : bool
        Whether the file stays, so that errors name it.

    Raises
    ------
    ValidationError
        If the program fails, or does not end in time.
    """
    reading, writing = os.pipe()
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file, ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT,
            pass_fds=(writing,), env={**environment, _PIPE: str(writing)}))
        os.close(writing)
        stack.callback(process.communicate)
        if not select.select([reading], [], [], timeout)[0]:
            os.close(reading)
            process.kill()
            raise ValidationError(f"{script} did not end within {timeout:g} s")
        jvm = _read_offer(reading)
        if jvm is None and process.wait():
            words = error_line(log.read_text(encoding="utf-8", errors="replace"))
            raise ValidationError(f"{script} ended with status {process.returncode}: {words}"
                                  + f"; its output is in {log}" * is_kept)
        yield jvm


def offer_jvm() -> None:
    """Write where this process's JVM is to the pipe that :func:`process_with_jvm` named, and keep it for the block.

    That is until standard input ends. Where there is no JVM, as the program has started no Spark, nothing is written,
    and the process ends.
    """
    if _PIPE not in os.environ:
        return
    gateway = SparkContext._gateway
    with os.fdopen(int(os.environ[_PIPE]), "w") as pipe:
        if gateway is None:
            return
        at = gateway.gateway_parameters
        json.dump(asdict(JvmGateway(at.port, at.auth_token)), pipe)
    sys.stdin.read()


def _read_offer(descriptor: int) -> JvmGateway | None:
    """Return the gateway that :func:`offer_jvm` wrote to a pipe, which is closed; None where it wrote nothing."""
    with os.fdopen(descriptor) as pipe:
        offer = pipe.read()
    return JvmGateway(**json.loads(offer)) if offer else None


def adopt_settings() -> None:
    """Give the JVM that this process connects to the settings of ``PYSPARK_SUBMIT_ARGS``, which it was started without.

    Settings that were only those of the run before are taken back. A process that starts its own JVM has none to give.
    """
    if _PORT not in os.environ:
        return
    SparkContext._ensure_initialized()
    java = SparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    for name in _OF_ONE_RUN:
        java.clearProperty(name)
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    # Python workers of this machine have the JVM's variables, which are those of the first run.
    paths = {} if "--master" in arguments else {"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    for name, value in (paths | submitted_settings(arguments)).items():
        java.setProperty(name, value)


def submitted_settings(arguments: str) -> dict[str, str]:
    """Return the settings of arguments of ``spark-submit``; of one that is there twice the last, as Spark does.

    Examples
    --------
    >>> submitted_settings("--master local[2] --conf a=1 --conf 'b=x y' --conf a=2 pyspark-shell")
    {'a': '2', 'b': 'x y'}
    """
    words = shlex.split(arguments)
    pairs = [each.partition("=") for word, each in itertools.pairwise(words) if word == "--conf"]
    return {name: value for name, _, value in pairs}


def with_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python workers of this machine run this Python, unless it names another one.

    PySpark would run the ``python3`` of the PATH, which need not have vispark. Of a cluster's machines it says nothing.
    """
    if "PYSPARK_PYTHON" in environment or "--master" in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        return dict(environment)
    return {**environment, "PYSPARK_PYTHON": sys.executable}
