"""Command line ``vispark``: a table of commands, each in a module that is imported when the command is used.

A new command is a module with a click command called ``command``, and a line of :data:`COMMANDS`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gpu_worker.commands.deployment.errors import ClusterRefused
from gpu_worker.commands.deployment.lazy_group import LazyGroup
from gpu_worker.commands.deployment.output import (
    NO,
    UNKNOWN,
    USAGE,
    emit_error,
    expect_json,
    wrong_use_as_json,
)
from vispark.errors import OptionError, VisparkError

#: Name of a command: the module that has it, as ``command``.
COMMANDS: dict[str, str] = {
    "calibrate": "vispark.migrate.commands.calibrate_command",
    "cluster": "vispark.migrate.commands.cluster_command",
    "config": "vispark.migrate.commands.config_command",
    "predict": "vispark.migrate.commands.predict_command",
    "qualify": "vispark.migrate.commands.qualify_command",
    "report": "vispark.migrate.commands.report_command",
    "validate": "vispark.migrate.commands.validate_command",
    "profile": "vispark.migrate.commands.profile_command",
    "record": "vispark.migrate.commands.record_command",
    "port": "vispark.migrate.commands.port_command",
    "run": "vispark.migrate.commands.run_command",
    "submit": "vispark.migrate.commands.submit_command",
    "tune": "vispark.migrate.commands.tune_command",
}


class _MigrationCommands(LazyGroup):
    """Commands whose errors are one message each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        expect_json(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with wrong_use_as_json(ctx):
                return super().invoke(ctx)
        except VisparkError as error:
            status = USAGE if isinstance(error, OptionError) else NO if isinstance(error, ClusterRefused) else UNKNOWN
            emit_error(ctx, str(error), status)
            ctx.exit(status)


@click.group(cls=_MigrationCommands, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Bring PySpark programs onto the GPU: qualify, port, and prove it.

    Exit status: 0 yes; 2 wrong use; 3 does not qualify, or differs; 4 not known.
    """
    # Spark would start its tasks with the first python3 on PATH, which need not have vispark and what the program uses.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
