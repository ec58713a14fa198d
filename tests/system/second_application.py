"""A second application on a cluster of the tests, in a process of its own.

It reads master and nodes from its first argument, loads data with one executor of three GPUs, prints which devices its
session has on each node, and ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.system import topology
from tests.system.gpu_tools import blocks, gpu_context, held


def main() -> None:
    master, nodes = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        cluster = topology.Topology(master, tuple(topology.LocalNode(host, Path(path)) for host, path in nodes), 0,
                                    Path(directory))
        with gpu_context(cluster, 1, gpus=3) as sc:
            points = blocks(sc, Path(directory)).cache("GPU")
            assert points.count() == 8
            print(json.dumps(held(sc, cluster)), flush=True)
            sys.stdin.read()
    topology.shutdown()


if __name__ == "__main__":
    main()
