"""Options that several commands of ``gpu-worker`` have."""

from __future__ import annotations

import click

from gpu_worker.system.paths import VARIABLE

#: Exit status of commands that look at a daemon where none runs.
NO_DAEMON = 3

runtime_dir_option = click.option(
    "--runtime-dir", type=click.Path(file_okay=False),
    help=f"Where sockets and logs lie. [default: ${VARIABLE}, $XDG_RUNTIME_DIR/vispark, or a directory per user]")
