"""A client and a daemon of another version, which understands nothing that the client says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.protocol.errors import ProtocolError
from gpu_worker.protocol.messages import VERSION, Status
from gpu_worker.system.admin import administer, stop

#: Refuses each greeting as one that it cannot read, in the form of a device process's refusals.
_OLD = """
import socket, sys
from gpu_worker.protocol.messages import Failure, Greeting
from gpu_worker.protocol.wire import Connection
directory, locked = sys.argv[1:]
lock = open(directory + "/daemon.lock", "w") if locked else None
listener = socket.socket(socket.AF_UNIX)
listener.bind(directory + "/daemon.sock")
listener.listen()
print("ready", flush=True)
while True:
    sock, _ = listener.accept()
    said = "message is an array of 8, not the 3 fields of Hello; this worker speaks version 2"
    Connection(sock).send(Failure(0, "ProtocolError", said, "", None, "", "", ""), Greeting)
    sock.close()
"""


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rt")
    path.chmod(0o700)
    (path / "daemon.lock").touch()
    return path


@pytest.fixture
def old(directory: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen]:
    """Start a process that listens where the daemon does; the daemon is who has the lock."""
    with subprocess.Popen([sys.executable, "-c", _OLD, str(directory), request.param],
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.read(6) == b"ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize("old", ["locked"], indirect=True)
def test_a_daemon_of_another_version_is_ended(directory: Path, old: subprocess.Popen):
    with pytest.raises(ProtocolError, match=rf"version 2; this client speaks version {VERSION} .*'gpu-worker stop'"):
        administer(Status(), runtime_dir=str(directory))
    stop(runtime_dir=str(directory))
    assert old.wait(10) == -15


@pytest.mark.parametrize("old", [""], indirect=True)
def test_a_process_that_is_not_the_daemon_is_not(directory: Path, old: subprocess.Popen):
    with pytest.raises(ProtocolError, match="version 2"):
        stop(runtime_dir=str(directory))
    assert old.poll() is None
