"""Command line ``vispark``: a table of commands, each in a module that is imported when the command is used.

A new command is a module with a click command called ``command``, and a line of :data:`COMMANDS`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from gpu_worker.deployment.errors import ClusterRefused
from gpu_worker.deployment.output import NO, UNKNOWN, USAGE, emit, json_option
from vispark.errors import OptionError, VisparkError

__all__ = ["COMMANDS", "LazyGroup", "emit", "json_option", "main"]

#: Name of a command: the module that has it, as ``command``.
COMMANDS: dict[str, str] = {
    "calibrate": "vispark.migrate.calibrate_command",
    "cluster": "vispark.migrate.cluster_command",
    "config": "vispark.migrate.config_command",
    "predict": "vispark.migrate.predict_command",
    "qualify": "vispark.migrate.qualify_command",
    "report": "vispark.migrate.report_command",
    "validate": "vispark.migrate.validate_command",
    "profile": "vispark.migrate.profile_command",
    "record": "vispark.migrate.record_command",
    "port": "vispark.migrate.port_command",
    "run": "vispark.migrate.run_command",
    "submit": "vispark.migrate.submit_command",
    "tune": "vispark.migrate.tune_command",
}


class LazyGroup(click.Group):
    """Group of commands whose modules are imported when they are used, and whose errors are one message each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.add_command(import_module(COMMANDS[cmd_name]).command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except VisparkError as error:
            click.echo(f"vispark: {error}", err=True)
            ctx.exit(USAGE if isinstance(error, OptionError) else NO if isinstance(error, ClusterRefused) else UNKNOWN)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Bring PySpark programs onto the GPU: qualify, port, and prove it.

    Exit status: 0 yes; 2 wrong use; 3 does not qualify, or differs; 4 not known.
    """
    # Spark would start its tasks with the first python3 on PATH, which need not have vispark and what the program uses.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
