"""Commands ``vispark cluster``: those of :mod:`gpu_worker.commands.deployment.commands`, and ``doctor``."""

from __future__ import annotations

import shlex

import click

from gpu_worker.commands.deployment import commands
from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.commands.deployment.manager import Clusters
from gpu_worker.commands.deployment.output import NO, YES, dry_run_option, emit, json_option
from gpu_worker.commands.deployment.platforms import platform_of
from vispark.migrate.clusters import doctor, spark_submit


@click.group("cluster")
@click.pass_context
def command(context: click.Context) -> None:
    """Create, list, show, connect to, examine and delete clusters, which are recorded in the user's folder for state.
    """
    context.obj = Clusters()


commands.add_to(command)


@command.command("doctor")
@click.argument("name")
@click.option("--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds for an answer.")
@dry_run_option
@json_option
@click.pass_obj
def examine(clusters: Clusters, name: str, timeout: float, dry_run: bool, as_json: bool) -> None:
    """Run a program on the cluster NAME that reports what each node has; exit status 3 if something is wrong."""
    record, settings = clusters.submission(name)
    if hasattr(platform_of(record.platform), "send"):
        raise ClusterError(f"programs go to cluster {name} as steps, whose output stays in their logs: run gpu-worker "
                           "doctor on its machines")
    if dry_run:
        line = spark_submit.command_line(settings, [], "doctor.py")
        emit({"command": line}, as_json, lambda: shlex.join(line))
        return
    diagnosis = doctor.examine(settings, timeout)
    emit({"problems": diagnosis.problems, **diagnosis.answer}, as_json, lambda: _diagnosis(name, diagnosis))
    click.get_current_context().exit(NO if diagnosis.problems else YES)


def _diagnosis(name: str, diagnosis: doctor.Diagnosis) -> str:
    answer, gib = diagnosis.answer, 2 ** 30
    lines = [f"cluster {name}: {answer['master']}, Spark {answer['spark']}, device {answer['device']}, "
             f"{'computes' if answer['computes'] else 'does not compute'}"]
    for host, node in diagnosis.nodes().items():
        gpus = f", GPUs {', '.join(node['gpus'])}" if node["gpus"] else ", no GPU assigned"
        lines.append(f"  {host}: {node['tasks']} tasks, Python {node['python']}, vispark {node['vispark']}, "
                     f"{node['memory'] / gib:.0f} GiB, /dev/shm {node['shm'] / gib:.1f} GiB{gpus}")
    return "\n".join([*lines, *(f"  wrong: {each}" for each in diagnosis.problems)] if diagnosis.problems else
                     [*lines, "  nothing is wrong"])
