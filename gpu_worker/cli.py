"""Command line ``gpu-worker``: a table of commands, each in a module that is imported when the command is used."""

from __future__ import annotations

from typing import Any

import click

from gpu_worker.commands.deployment.lazy_group import LazyGroup
from gpu_worker.commands.options import NO_DAEMON
from gpu_worker.protocol.errors import VisparkError, WorkerUnavailable

#: Name of a command: the module that has it, and under which name.
COMMANDS: dict[str, str] = {
    "clusters": "gpu_worker.commands.deployment.commands:clusters",
    "dashboard": "gpu_worker.commands.monitor.commands:dashboard",
    "doctor": "gpu_worker.commands.doctor:doctor",
    "gpus": "gpu_worker.commands.control:gpus",
    "logs": "gpu_worker.commands.control:logs",
    "metrics": "gpu_worker.commands.monitor.commands:metrics",
    "publications": "gpu_worker.commands.status:publications",
    "start": "gpu_worker.commands.start:start",
    "status": "gpu_worker.commands.status:status",
    "stop": "gpu_worker.commands.control:stop",
    "top": "gpu_worker.commands.monitor.commands:top",
    "unpublish": "gpu_worker.commands.control:unpublish",
}


class _DaemonCommands(LazyGroup):
    """Commands whose errors are one message each."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerUnavailable as error:
            click.echo(f"gpu-worker: {error}", err=True)
            ctx.exit(NO_DAEMON if ctx.invoked_subcommand in ("status", "stop") else 1)
        except VisparkError as error:
            click.echo(f"gpu-worker: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_DaemonCommands, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Control this node's GPU worker, which keeps the partitions of vispark's RDDs."""
