"""Supervisor of mpirun, which ends mpirun when the process that started it ends and so closes the standard input."""

from __future__ import annotations

import os
import select
import subprocess
import sys

#: How long what was told to end has for it, in seconds.
GRACE_SECONDS = 2.0


def main(command: list[str]) -> int:
    """Run a command; its exit status."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        ended = os.pidfd_open(child.pid)
        select.select([sys.stdin.fileno(), ended], [], [])
        for end in (child.terminate, child.kill):
            if select.select([ended], [], [], 0)[0]:
                break
            end()
            select.select([ended], [], [], GRACE_SECONDS)
        os.close(ended)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
