"""Starts of prted alone by daemons for each other, for those who have the cluster's key."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.exchange.mpi.cluster import Cluster
from gpu_worker.exchange.mpi.nodes import WORKERS, arguments_of_prted, checked, worker_of
from gpu_worker.protocol.errors import OptionError, ProtocolError, Unauthorized, VisparkError, WorkerUnavailable
from gpu_worker.protocol.messages import StartPrted
from gpu_worker.system.paths import RuntimeDirectory

#: As mpirun gives it to a launch agent.
LINE = ('PRTE_PREFIX=/opt/mpi;export PRTE_PREFIX;LD_LIBRARY_PATH=/opt/mpi/lib:$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;'
        '/opt/mpi/bin/prted --daemonize --prtemca ess "env" --prtemca prte_hnp_uri '
        '"prterun-vm-1@0.0;tcp://192.0.2.2:42447:64,24" --prtemca plm_ssh_agent "/bin/evil" --tree-spawn')


def test_the_arguments_of_prted_are_found_and_agents_left_out():
    assert arguments_of_prted(LINE.split(" ")) == (
        "--daemonize", "--prtemca", "ess", "env", "--prtemca", "prte_hnp_uri",
        "prterun-vm-1@0.0;tcp://192.0.2.2:42447:64,24", "--tree-spawn")


@pytest.mark.parametrize("line", ["/bin/sh -c true", "/opt/mpi/bin/prted --prtemca ess", "/opt/mpi/bin/prted; rm -r x",
                                  "/opt/mpi/bin/prted --exec x", "/opt/mpi/bin/prted --prtemca a 'b\nc'"])
def test_anything_else_is_refused(line: str):
    with pytest.raises(ProtocolError):
        arguments_of_prted([line])
    with pytest.raises(ProtocolError):
        checked(["/bin/sh"])


def test_nodes_of_a_world_are_workers():
    variables = {WORKERS: "one\ntwo"}
    assert [worker_of(f"vispark-{rank}", variables) for rank in (0, 1)] == ["one", "two"]
    for node in ("vispark-2", "localhost", "vispark--1"):
        with pytest.raises(ProtocolError):
            worker_of(node, variables)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("a key of the cluster")
    path.chmod(0o600)
    return path


@pytest.fixture
def listening(tmp_path: Path, key: Path) -> Iterator[str]:
    """Listen as a daemon's side does; it has no prted to start for a worker of another name."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    directory = RuntimeDirectory(tmp_path / "asked")
    directory.ensure()
    cluster = Cluster(directory, listen=address, key=key)
    cluster.open()
    yield address
    cluster.close()


def asking(tmp_path: Path, address: str, key: Path) -> Cluster:
    directory = RuntimeDirectory(tmp_path / "asks")
    directory.ensure()
    return Cluster(directory, [address], key=key)


def test_daemons_with_one_key_hear_each_other_over_tcp(tmp_path: Path, key: Path, listening: str):
    with pytest.raises(OptionError, match="gpu-worker start --hosts") as failed:
        asking(tmp_path, listening, key).start(StartPrted("nobody", ()))
    assert "not nobody" in failed.value.detail


def test_who_is_known_can_be_asked_before_anything_is_started(tmp_path: Path, key: Path, listening: str):
    cluster = asking(tmp_path, listening, key)
    for known in (tmp_path / "asks", tmp_path / "asked"):
        cluster.start(StartPrted(RuntimeDirectory(known).worker, (), asks=True))
    with pytest.raises(OptionError, match="no daemon that this one knows is worker nobody"):
        cluster.start(StartPrted("nobody", (), asks=True))


def test_a_daemon_with_another_key_is_not_heard(tmp_path: Path, key: Path, listening: str):
    other = tmp_path / "other"
    other.write_text("another key altogether")
    other.chmod(0o600)
    with pytest.raises(WorkerUnavailable) as failed:
        asking(tmp_path, listening, other).start(StartPrted("nobody", ()))
    assert "not nobody" not in failed.value.detail


def test_keys_are_ones_own_and_long(tmp_path: Path, key: Path):
    directory = RuntimeDirectory(tmp_path / "d")
    directory.ensure()
    with pytest.raises(OptionError, match="need a key"):
        Cluster(directory, ["host:1234"])
    key.chmod(0o644)
    with pytest.raises(Unauthorized, match="0600"):
        Cluster(directory, ["host:1234"], key=key)
    key.chmod(0o600)
    key.write_text("short")
    with pytest.raises(OptionError, match="16 or more"):
        Cluster(directory, ["host:1234"], key=key)
    with pytest.raises(VisparkError, match="no host with a port"):
        Cluster(directory, ["host"])
