"""A second application, in a process of its own, that evaluates expressions.

It reads the master, the nodes and settings from its first argument. Each line of its standard input is a Python
expression, in which ``sc`` is its context and ``it`` a dict of its own; it answers with a line of JSON: the result, or
what was raised. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import vispark
from tests.system import topology

_MARK = "answer: "


class OtherApplication:
    """The other application, as the tests see it."""

    def __init__(self, process: subprocess.Popen):
        self.process = process

    def ask(self, expression: str) -> Any:
        """Evaluate an expression there; raise RuntimeError with what was raised there."""
        self.process.stdin.write(expression.replace("\n", " ") + "\n")
        self.process.stdin.flush()
        while not (line := self.process.stdout.readline()).startswith(_MARK):
            assert line, f"the application ended with {self.process.wait()}"
        kind, answer = json.loads(line.removeprefix(_MARK))
        if kind == "error":
            raise RuntimeError(answer)
        return answer


@contextlib.contextmanager
def other_application(cluster: topology.Topology, settings: Mapping[str, object]) -> Iterator[OtherApplication]:
    """Start an application on a topology; it ends with the block."""
    nodes = [(node.host, str(node.runtime_dir)) for node in cluster.nodes]
    arguments = json.dumps([cluster.master, nodes, cluster.executors, cluster.conf | dict(settings)])
    with subprocess.Popen([sys.executable, "-m", "tests.system.other_application", arguments], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        try:
            application = OtherApplication(process)
            assert application.ask("'ready'") == "ready"
            yield application
            process.stdin.close()
            assert process.wait(60) in (0, -9)
        finally:
            process.kill()


def main() -> None:
    master, nodes, executors, settings = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        cluster = topology.Topology(master, tuple(topology.LocalNode(host, Path(path)) for host, path in nodes),
                                    executors, Path(directory), settings)
        with cluster.context() as sc:
            names: dict[str, Any] = {"sc": sc, "it": {}, "vispark": vispark, "os": os}
            for line in sys.stdin:
                try:
                    answer = "result", eval(line, names)
                except vispark.VisparkError as error:
                    answer = "error", f"{type(error).__name__}: {error}"
                print(_MARK + json.dumps(answer, default=repr), flush=True)
    topology.shutdown()


if __name__ == "__main__":
    main()
