"""Driver's view of the GPUs that Spark assigned to its executors, and the settings under which Spark would hang."""

from __future__ import annotations

import logging
from typing import Any

from pyspark import RDD, SparkContext

from vispark.errors import OptionError
from vispark.runtime.driver.spark_errors import CALL_FAILED
from vispark.runtime.executor.assigned_gpus import GPU, AssignedGpus

log = logging.getLogger(__name__)

_EXECUTOR, _TASK = f"spark.executor.resource.{GPU}.amount", f"spark.task.resource.{GPU}.amount"


def is_local(context: SparkContext) -> bool:
    """Return whether tasks run in the driver's JVM (``local``, ``local[4]``); not so in a ``local-cluster``."""
    master = context.master or ""
    return master == "local" or master.startswith("local[")


def check_local(context: SparkContext) -> None:
    """Raise an error where Spark would never start a task.

    Raises
    ------
    OptionError
        In local mode, whose only executor has no GPUs, when tasks ask for some.
    """
    amounts = {name: context.getConf().get(name, "0") for name in (_EXECUTOR, _TASK)}
    if is_local(context) and all(_number(amount) > 0 for amount in amounts.values()):
        settings = " and ".join(f"{name}={amount}" for name, amount in amounts.items())
        raise OptionError(f"{settings} let no task start with the master {context.master}, whose executor has no GPUs: "
                          "leave both away (spark.driver.resource.gpu.amount and .discoveryScript say which GPUs are "
                          "taken then), or take the master local-cluster[1,2,1024]")


def assigned(context: SparkContext) -> AssignedGpus:
    """Return the GPUs of an application's executors, as far as they are there.

    Raises
    ------
    OptionError
        As :func:`check_local`.
    """
    check_local(context)
    if is_local(context):
        assigned = context.resources.get(GPU)
        addresses = tuple(assigned.addresses) if assigned else ()
        return AssignedGpus(bool(addresses), {"driver": addresses})
    gpus = AssignedGpus(gpus_of_executors(context) > 0)
    if gpus.is_scheduled:
        refresh(gpus, context)
    return gpus


def gpus_of_executors(context: SparkContext) -> int:
    """Return the number of GPUs that each executor of the default profile has."""
    return int(_number(context.getConf().get(_EXECUTOR, "0")))


def cores_of_executors(context: SparkContext) -> int:
    """Return the cores of an executor: as configured, else of the largest that is there; 1 if nothing is known."""
    configured = context.getConf().get("spark.executor.cores", "")
    if configured:
        return int(configured)
    listed = context._jsc.sc().statusStore().executorList(True)
    return max([listed.apply(place).totalCores() for place in range(listed.size())
                if listed.apply(place).id() != "driver"], default=1)


def refresh(gpus: AssignedGpus, context: SparkContext, loader: RDD[Any] | None = None) -> None:
    """Bring the driver's view up to date before a load, where GPUs are scheduled or the load asks for them."""
    if is_local(context) or not (gpus.is_scheduled or asks_for_gpus(loader)):
        return
    gpus.is_scheduled = True
    try:
        gpus.by_executor = _by_executor(context)
    except CALL_FAILED as error:
        # Its tasks know their own.
        log.info("Spark does not say which GPUs its executors have: %s", str(error).partition("\n")[0])


def asks_for_gpus(rdd: Any) -> bool:
    """Return whether an RDD of Python's, or one of those that it is computed from, has a profile with GPUs."""
    while rdd is not None:
        profile = rdd.getResourceProfile() if getattr(rdd, "has_resource_profile", False) else None
        if profile is not None and (GPU in profile.taskResources or GPU in profile.executorResources):
            return True
        rdd = getattr(rdd, "prev", None)
    return False


def _by_executor(context: SparkContext) -> dict[str, tuple[str, ...]]:
    """Return the GPU addresses of the executors that are there, by Spark's status store."""
    listed = context._jsc.sc().statusStore().executorList(True)
    addresses = {}
    for place in range(listed.size()):
        executor = listed.apply(place)
        gpu = executor.resources().get(GPU)
        addresses[executor.id()] = tuple(gpu.get().addresses()) if gpu.isDefined() else ()
    return addresses


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0      # Spark says so itself
