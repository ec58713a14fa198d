"""Runs of programs on a cluster that ``vispark cluster`` made: settings of the sessions that they start."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.commands.deployment.manager import Clusters
from gpu_worker.commands.deployment.platforms import SubmitSettings, platform_of
from vispark.migrate.clusters import spark_submit


def settings_of(cluster: str, conf: Sequence[str]) -> SubmitSettings:
    """Return the settings of a cluster, with the user's own over them.

    Parameters
    ----------
    cluster : str
        Its name; empty for what the program and Spark's own settings say.
    conf : sequence of str
        ``NAME=VALUE``.

    Raises
    ------
    ClusterError
        If there is no such cluster, it takes no programs, or it takes them as steps, whose driver is elsewhere.
    OptionError
        If a setting is none.
    """
    own = spark_submit.settings_of(conf)
    if not cluster:
        return SubmitSettings("", own)
    record, submission = Clusters().submission(cluster)
    if hasattr(platform_of(record.platform), "send") or "cluster" in submission.options:
        raise ClusterError(f"programs go to cluster {cluster} with a driver of its own, whose results cannot be "
                           "compared from here: call vispark run on its first machine")
    return SubmitSettings(submission.master, submission.conf | own, submission.options, submission.environment,
                          submission.secrets)


@contextmanager
def running_on(settings: SubmitSettings) -> Iterator[None]:
    """Have the programs of a block, which start Spark themselves, run on a cluster.

    Their own settings go first, as with ``spark-submit``.
    """
    before = dict(os.environ)
    with spark_submit.with_secrets(settings, []) as files:
        words = [f"--{name}={value}" for name, value in files if value is not None]
        words += ["--master", settings.master] if settings.master else []
        words += settings.options
        for name, value in settings.conf.items():
            words += ["--conf", f"{name}={value}"]
        os.environ.update(spark_submit.environment(settings))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(words)} {before.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}"
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
