"""Resource profiles for loads: which share of a GPU a task asks of Spark."""

from __future__ import annotations

import logging
import math
from typing import Any

import pyspark
from pyspark import RDD, SparkContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests

from vispark.errors import PlanError
from vispark.runtime.driver.executor_gpus import check_local, cores_of_executors, gpus_of_executors, is_local
from vispark.runtime.driver.spark_errors import PipelinedRDD
from vispark.runtime.executor.assigned_gpus import GPU

log = logging.getLogger(__name__)

#: The first release that knows task profiles beside standalone clusters (SPARK-45495).
_EVERYWHERE = (3, 5, 1)


def gpu_profile(sc: SparkContext, gpus: float | None = None, cpus: int = 1) -> ResourceProfile | None:
    """Return the resource profile with which the tasks of a load share the GPUs of their executor.

    A load packs records on processor cores and copies them to a GPU; it does not need one alone. With the default, as
    many tasks of an executor run at once as it has cores, where ``spark.task.resource.gpu.amount`` may let one.

    Parameters
    ----------
    sc : SparkContext
        Of an application with ``spark.executor.resource.gpu.amount``.
    gpus : float, optional
        GPUs of a task: 0.5 or less, or a whole number. The default gives each core of an executor its share.
    cpus : int
        Cores of a task.

    Returns
    -------
    pyspark.resource.ResourceProfile or None
        For :meth:`pyspark.RDD.withResources` and :meth:`vispark.VRDD.withResources`; executors stay as they are. None,
        with the reason in the log, where Spark schedules no GPUs: in local mode, without GPUs in the executors, and
        before PySpark 3.5.1 on other clusters than standalone ones.

    Raises
    ------
    OptionError
        In local mode with amounts of GPUs under which no task would start.
    PlanError
        If no executor has so many GPUs or cores, or a task cannot have such a part of a GPU.
    TypeError
        If the amounts are no numbers, or ``sc`` is no context.

    Examples
    --------
    >>> gpu_profile(sc) is None         # of a local context
    True

    With executors of 8 cores and 2 GPUs, 8 tasks of 0.25 GPUs load at once::

        points = rdd.withResources(vispark.gpu_profile(sc)).cache("GPU")
    """
    _check_amounts(sc, gpus, cpus)
    check_local(sc)
    owned = gpus_of_executors(sc)
    reason = _unable(sc, owned)
    if reason:
        log.warning("no profile for GPUs: %s", reason)
        return None
    cores = cores_of_executors(sc)
    if not 1 <= cpus <= cores:
        raise PlanError(f"a task cannot have {cpus} cores: executors have {cores}")
    share = _share(owned, cores // cpus) if gpus is None else gpus
    if not 0 < share <= owned or (share > 0.5 and share != int(share)):
        raise PlanError(f"a task cannot have {share} GPUs of an executor's {owned}: write 0.5 or less, as 1/n, or a "
                        "whole number")
    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus).resource(GPU, share)).build


def with_profile(sent: RDD[Any], profile: ResourceProfile) -> RDD[Any]:
    """Return an RDD of the same records whose tasks have a profile; ``sent`` stays as it is.

    Raises
    ------
    PlanError
        If ``sent`` has another profile, and Spark does not merge profiles.
    """
    merges = sent.ctx.getConf().get("spark.scheduler.resource.profileMergeConflicts", "false") == "true"
    rdd: Any = sent
    while rdd is not None and not merges:
        other = rdd.getResourceProfile() if getattr(rdd, "has_resource_profile", False) else None
        if other is not None and other.id != profile.id:
            raise PlanError(f"the RDD that was sent has the resource profile {other.id}, and a stage of Spark's has "
                            f"one profile, not also {profile.id}: give it to one of the two only, or set "
                            "spark.scheduler.resource.profileMergeConflicts=true")
        rdd = getattr(rdd, "prev", None)
    profiled: RDD[Any] = PipelinedRDD(sent, _as_it_is, True).withResources(profile)
    return profiled


def _check_amounts(sc: object, gpus: object, cpus: object) -> None:
    if not isinstance(sc, SparkContext):
        raise TypeError(f"gpu_profile(sc, gpus, cpus) takes a SparkContext first, not {type(sc).__name__}")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int | float)):
        raise TypeError(f"gpus is a number of GPUs, such as 0.25 or 1, not {gpus!r}")
    if isinstance(cpus, bool) or not isinstance(cpus, int):
        raise TypeError(f"cpus is a whole number of cores, not {cpus!r}")


def _as_it_is(_: int, records: object) -> object:
    return records


def _unable(sc: SparkContext, owned: int) -> str:
    """Return the reason for which Spark could not schedule tasks by such a profile; empty if it can."""
    if is_local(sc):
        return "in local mode the driver runs the tasks, and Spark assigns no GPUs to them"
    if not owned:
        return f"the executors have none: set spark.executor.resource.{GPU}.amount"
    standalone = (sc.master or "").startswith(("spark://", "local-cluster"))
    version = tuple(int(number) for number in pyspark.__version__.split(".")[:3] if number.isdecimal())
    if version < _EVERYWHERE and not standalone:
        return f"PySpark {pyspark.__version__} knows profiles of tasks alone on standalone clusters only; 3.5.1 does"
    return ""


def _share(owned: int, slots: int) -> float:
    """Return the GPUs of each of ``slots`` tasks that run at once, as Spark takes them.

    Examples
    --------
    >>> _share(2, 8), _share(1, 3), _share(4, 5), _share(4, 2)
    (0.25, 0.3333, 0.5, 2)
    """
    if owned >= slots:
        return owned // slots
    # Rounded down to digits that Spark takes for the same: it allows floor(1 / share) tasks to a GPU.
    return math.floor(10_000 / math.ceil(slots / owned)) / 10_000
