"""Supervisor of mpirun, which ends mpirun when the process that started it ends and so closes the standard input; and
the folder that each program of Open MPI's runtime gets.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile

#: How long what was told to end has for it, in seconds.
GRACE_SECONDS = 2.0


def own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder for the files of one mpirun or prted (``TMPDIR``).

    They name theirs by the number of their process alone, and end where one that was killed, and had the same number,
    has left its own. Of a prted mpirun does not hear that, and waits for it without end.
    """
    return tempfile.TemporaryDirectory(prefix="vispark-world-", ignore_cleanup_errors=True)


def main(command: list[str]) -> int:
    """Run a command; its exit status."""
    with own_folder() as folder, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, env=os.environ | {"TMPDIR": folder}) as child:
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
