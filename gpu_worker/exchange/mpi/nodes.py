"""Startup of a world's ranks: mpirun, its launch agent, and the daemons of the nodes.

mpirun knows the nodes of a world as ``vispark-0``, ``vispark-1`` and so on, which no resolver has to know. To reach
one it starts the launch agent (:mod:`gpu_worker.exchange.mpi.agent`), which tells its own node's daemon; that one
starts ``prted`` itself, or has another node's daemon do so. Daemons start ``prted`` and nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_worker.protocol.errors import BY_NAME, ProtocolError, VisparkError, WorkerUnavailable
from gpu_worker.protocol.extras import install
from gpu_worker.protocol.system import system_call
from gpu_worker.system import log
from gpu_worker.system.launcher import environment
from gpu_worker.system.paths import RuntimeDirectory

#: The variables that say to a rank which world it is of, and to the launch agent which workers are in it.
KEY = "VISPARK_WORLD"
WORKERS = "VISPARK_WORLD_WORKERS"

#: Variables of a job scheduler's allocation, or of an MPI job, that this process was started in. With them mpirun takes
#: the allocation's hosts, or starts prted by the scheduler, and ends with status 1. Settings (``OMPI_MCA_``...) stay.
_FOREIGN = re.compile(r"SLURM_|SLURMD_|SRUN_|PBS_|LSB_|PE_HOSTFILE$|FLUX_|PALS_|ALPS_|OMPI_COMM_WORLD_|OMPI_UNIVERSE_|"
                      r"PMIX_(RANK|NAMESPACE|SERVER_|SYSTEM_|HOSTNAME|VERSION)|PMI_|PRTE_LAUNCHED|PRTE_HNP|"
                      r"(PRTE|OMPI)_MCA_(ras|plm|ess)(_|$)")

#: How far back in the log launch agents' lines are looked for; mpirun says much behind them.
_LINES = 100

_NODE = re.compile(r"vispark-(\d+)")

#: prted's own arguments, with how many values follow each; an agent of its own it is not told.
_ARGUMENTS = {"--prtemca": 2, "--pmixmca": 2, "--allow-run-as-root": 0, "--tree-spawn": 0,
              "--leave-session-attached": 0, "--debug-daemons": 0, "--daemonize": 0}
#: What ``mpirun --version`` of a release that knows these begins with.
_RELEASE = re.compile(r"mpirun \(Open MPI\) ([5-9]|\d\d)")
_VERSION_SECONDS = 10.0
_DROPPED = ("plm_ssh_agent", "plm_rsh_agent", "ess_base_jobid")


def world_socket(directory: RuntimeDirectory, key: bytes) -> Path:
    """Return the path of the socket at which a device process awaits its rank of the world with this key."""
    return directory.sessions / f"{key.hex()[:16]}.world"


def program(name: str) -> str:
    """Return the path of Open MPI's program of this name: beside this Python, where its wheel installs it, or the
    system's.

    Raises
    ------
    WorkerUnavailable
        If there is none.
    """
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if not path:
        raise WorkerUnavailable(f"a grid that spans nodes needs Open MPI 5, and there is no {name} here: "
                                f"{install('mpi')}")
    return path


def why_unfit(path: str) -> str:
    """Return the reason for which an ``mpirun`` cannot start a world; "" if it is Open MPI 5 or later, or does not say,
    as on a machine that has no process or no time for it.
    """
    try:
        release = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=_VERSION_SECONDS, text=True, errors="replace").stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if _RELEASE.match(release):
        return ""
    return (f"a grid that spans nodes needs Open MPI 5, and {path} is {release.partition(chr(10))[0]!r}: "
            f"{install('mpi')}, beside this Python")


def mpirun(directory: RuntimeDirectory, key: bytes, workers: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the ranks of a world, one for each worker, in their order."""
    agent = f"{shlex.quote(sys.executable)} -P -m gpu_worker.exchange.mpi.agent"
    command = [program("mpirun"), *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
               "--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", agent,
               "--prtemca", "plm_ssh_no_tree_spawn", "1", "--bind-to", "none",
               # A rank is alone on its node; and the segments of those that are killed would stay.
               "--mca", "btl", "^sm",
               "-x", KEY, "--host", ",".join(f"vispark-{rank}:1" for rank in range(len(workers))),
               "-np", str(len(workers)), sys.executable, "-P", "-m", "gpu_worker.exchange.mpi.rank"]
    # Where this process ends, mpirun does, and with it the ranks.
    supervised = [sys.executable, "-P", "-m", "gpu_worker.exchange.mpi.supervise"]
    variables = outside_of_jobs(environment(directory)) | {KEY: key.hex(), WORKERS: "\n".join(workers)}
    output = log.open_for_output(directory.process_log)
    try:
        return subprocess.Popen([*supervised, *command], stdin=subprocess.PIPE, stdout=output, stderr=output,
                                env=variables, start_new_session=True)
    finally:
        os.close(output)


def outside_of_jobs(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what mpirun and prted would read of a scheduler's or an MPI's job around it."""
    return {name: value for name, value in variables.items() if not _FOREIGN.match(name)}


def refused(key: str, node: str, error: VisparkError) -> str:
    """Return the line by which a launch agent reports why it cannot reach a node of a world, given in hexadecimal
    digits.
    """
    return _lead(key, type(error)) + f"node {node}: {error}".replace("\n", "; ")


def refusals(directory: RuntimeDirectory, key: bytes, of: type[VisparkError]) -> str:
    """Return the errors of a kind that a world's launch agents wrote to this node's log; "" if there are none."""
    lines = log.tail(directory.process_log, _LINES).splitlines()
    leads = tuple(_lead(key.hex(), kind) for kind in BY_NAME.values() if issubclass(kind, of))
    return "; ".join("node " + line.partition(": node ")[2] for line in lines if line.startswith(leads))


def _lead(key: str, kind: type[VisparkError]) -> str:
    return f"world {key[:16]}: {kind.__name__}: "


def worker_of(node: str, variables: Mapping[str, str]) -> str:
    """Return the worker that mpirun calls by a node's name."""
    match = _NODE.fullmatch(node)
    workers = variables.get(WORKERS, "").split("\n")
    if not match or int(match[1]) >= len(workers):
        raise ProtocolError(f"mpirun asks for a node {node!r}, which is not of this world")
    return workers[int(match[1])]


def arguments_of_prted(words: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments for prted in a command line that mpirun made for a shell.

    Raises
    ------
    ProtocolError
        If it runs anything else.
    """
    lexer = shlex.shlex(" ".join(words), posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    parts = list(lexer)
    start = next((place for place, part in enumerate(parts) if Path(part).name == "prted"), None)
    if start is None:
        raise ProtocolError("mpirun does not ask for prted")
    return checked(parts[start + 1:])


def checked(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return prted's arguments if they are allowed, without those that would make prted run commands.

    Raises
    ------
    ProtocolError
        If there are others.
    """
    passed, place = [], 0
    while place < len(arguments):
        argument = arguments[place]
        count = _ARGUMENTS.get(argument)
        values = list(arguments[place + 1:place + 1 + (count or 0)])
        if count is None or len(values) < count or not all(value.isprintable() for value in values):
            raise ProtocolError(f"prted is not started with {argument!r}")
        if not values or values[0] not in _DROPPED:
            passed += [argument, *values]
        place += 1 + count
    return tuple(passed)


def start_prted(directory: RuntimeDirectory, arguments: Sequence[str], folder: str) -> subprocess.Popen[bytes]:
    """Start prted on this node, with its files in a folder."""
    path = Path(program("prted"))
    prefix = str(path.parent.parent)
    variables = outside_of_jobs(environment(directory)) | dict.fromkeys(("PRTE_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX"),
                                                                        prefix) | {"TMPDIR": folder}
    with system_call("prted cannot be started", WorkerUnavailable):
        output = log.open_for_output(directory.process_log)
        try:
            return subprocess.Popen([str(path), *checked(arguments)], stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=output, env=variables, start_new_session=True)
        finally:
            os.close(output)
