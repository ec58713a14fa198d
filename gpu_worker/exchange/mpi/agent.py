"""mpirun's launch agent: called with a node's name and a command line for its shell, which only ever starts prted."""

from __future__ import annotations

import os
import sys

from gpu_worker.exchange.mpi.nodes import KEY, arguments_of_prted, refused, worker_of
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import StartPrted
from gpu_worker.system.admin import administer


def main(node: str, words: list[str]) -> int:
    """Have the node's daemon start prted; the exit status."""
    try:
        administer(StartPrted(worker_of(node, os.environ), arguments_of_prted(words)))
    except VisparkError as error:
        print(refused(os.environ.get(KEY, ""), node, error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
