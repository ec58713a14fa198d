"""Magics of IPython and Jupyter, registered by ``%load_ext vispark``; IPython itself is never imported."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from vispark._utils.displays import Explanation
from vispark.errors import PlanError
from vispark.runtime.profiling.profiler import Profile, profile

#: A daemon that answers later is said to be busy.
_SECONDS = 30
#: How wide the table is, in characters.
_COLUMNS = "140"
#: What makes programs write colours where there is no terminal.
_COLOURS = {"FORCE_COLOR", "CLICOLOR_FORCE"}


def load_ipython_extension(ipython: Any) -> None:
    """Register ``%%vispark_profile`` and ``%vispark`` with an IPython shell; ``%load_ext vispark`` calls it.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell
        The shell whose magics they become.

    Examples
    --------
    In a notebook::

        %load_ext vispark

        %%vispark_profile
        total = points.vmap(lambda x: 2 * x).sum()

        %vispark status
    """
    def vispark_profile(line: str, cell: str) -> Profile:
        """Run a cell and return where its time went; ``%%vispark_profile PATH`` writes the trace, too."""
        path, is_done = os.path.expanduser(line.strip()), False
        try:
            with profile(path or None) as profiled:
                ipython.run_cell(cell).raise_error()
                is_done = True
        except OSError as error:
            if not is_done:
                raise
            print(f"the trace cannot be written: {error}; _.save(PATH) writes it elsewhere", file=sys.stderr)
        return profiled

    def vispark(line: str) -> Explanation:
        """Return the sessions of this machine's worker: ``%vispark status``."""
        if line.split() != ["status"]:
            raise PlanError(f"%vispark {line}: there is %vispark status alone")
        return status()

    ipython.register_magic_function(vispark_profile, "cell")
    ipython.register_magic_function(vispark, "line")


def status() -> Explanation:
    """Return the sessions of this machine's worker with their memory, as ``gpu-worker top --once`` prints them.

    The command runs in a process of its own, so a daemon that hangs holds up the notebook for 30 s at most.
    """
    # A kernel asks for colours, which are no part of a text.
    environment = {name: value for name, value in os.environ.items() if name not in _COLOURS} | {"COLUMNS": _COLUMNS}
    command = [sys.executable, "-m", "gpu_worker", "top", "--once"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS,
                               env=environment)
    except subprocess.TimeoutExpired:
        return Explanation(f"the worker has not answered within {_SECONDS} s")
    lines = (ended.stdout or ended.stderr).splitlines()
    return Explanation("\n".join(line.rstrip() for line in lines))
