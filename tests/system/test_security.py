"""One test for each line of the threat model, docs/development/security.md: who is refused, and by what."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.client import tcp
from gpu_worker.client.connection import administer, connect, exit_status
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.memory.spill_files import SpillFiles
from gpu_worker.protocol.codec import encode
from gpu_worker.protocol.control import Configuration, Registration
from gpu_worker.protocol.errors import DeviceUnavailable, OptionError, Unauthorized, VisparkError
from gpu_worker.protocol.messages import VERSION, Discard, GetSnapshot, Hello, PutSnapshot, Status
from gpu_worker.protocol.payload import Payload
from gpu_worker.system.admin import exchange_descriptors
from tests.leaks import is_alive
from tests.system.other_user import OTHER, as_other, as_root, opened, refusals
from tests.system.test_tcp import HOST, executor, knocking, reach, rest, visiting
from tests.system.worker_tools import SECRET, Runtime, ask, eventually, hello, new_runtime
from vispark.migrate.capture.run_capture import RunCapture, digest_of
from vispark.migrate.capture.stored_results import opened_results
from vispark.migrate.store.history import History
from vispark.runtime.profiling.journal import Journal

__all__ = ["executor", "reach"]

DENIED = "PermissionError"


@pytest.fixture
def public() -> Iterator[Path]:
    """Make a directory where everybody may make files, as /tmp; pytest's own are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="vs-") as directory:
        Path(directory).chmod(0o1777)
        yield Path(directory)


@pytest.fixture
def runtime(public: Path) -> Iterator[Runtime]:
    """Make a worker's runtime directory below a public one."""
    with new_runtime(public) as running:
        yield running


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[Runtime]:
    """Start a worker with a session, which must not notice anything."""
    with runtime.client() as client:
        yield runtime
        ask(client)


def processes(worker: Runtime) -> list[int]:
    """Return the ids of the daemon and of the session's device process."""
    return [worker.daemon(), *(session.pid for session in worker.status().sessions)]


# -- the Unix socket --------------------------------------------------------------------------------------------------

CONNECT = """
try:
    gpu_worker.client.connection.connect(tests.system.worker_tools.hello(), timeout=5)
except gpu_worker.client.connection.VisparkError as error:
    print(type(error).__name__, error)
"""


@as_root
def test_another_user_cannot_enter(worker: Runtime):
    output = as_other(CONNECT)
    assert "Unauthorized" in output and str(worker.path) in output


@as_root
def test_another_user_is_refused_even_where_the_files_are_open(worker: Runtime):
    with opened(worker.path / "daemon.sock", worker.path):
        output = as_other(f"""
sock = socket.socket(socket.AF_UNIX)
sock.connect({str(worker.path / "daemon.sock")!r})
print(sock.recv(1000))
""")
    assert "Unauthorized" in output and f"user {OTHER}" in output


@as_root
def test_another_user_s_publications_are_not_listed_or_attached(worker: Runtime):
    """Ask as vispark.attach does, where the directory is closed, and where it is open."""
    ask = """
for request in (gpu_worker.protocol.messages.ListPublications(),
                gpu_worker.protocol.messages.GetPublication("app", b"s" * 32, "points", "", b"", 1)):
    try:
        print("done:", gpu_worker.client.connection.administer(request, timeout=5))
    except gpu_worker.client.connection.VisparkError as error:
        print(type(error).__name__, error)
"""
    for paths in ((), (worker.path / "daemon.sock", worker.path)):
        with opened(*paths):
            answers = as_other(ask)
        assert answers.count("Unauthorized") == 2 and "done:" not in answers, answers


@as_root
def test_another_user_is_refused_by_a_device_process_too(runtime: Runtime):
    # Its socket is for the daemon, of which there is one at a time; while there is none, others could connect.
    path = runtime.path / "sessions" / "app.sock"
    with runtime.client(role="driver", client_pid=0) as client:
        daemon = runtime.daemon()
        os.kill(daemon, signal.SIGKILL)
        assert eventually(lambda: not is_alive(daemon))
        with opened(path, path.parent, runtime.path):
            output = as_other(f"""
sock = socket.socket(socket.AF_UNIX)
sock.connect({str(path)!r})
try:
    print(sock.recv(1000))
except ConnectionResetError:
    print(b"")
""")
        assert output == "b''\n"
        assert f"the daemon belongs to user {OTHER}" in runtime.logs()
        ask(client)
        runtime.start()


@as_root
def test_another_user_s_worker_is_not_greeted(runtime: Runtime):
    runtime.path.mkdir(mode=0o700)
    path = str(runtime.path / "daemon.sock")
    script = (f"import os, socket\nsock = socket.socket(socket.AF_UNIX)\nsock.bind({path!r})\n"
              f"os.setuid({OTHER})\nsock.listen()\nprint('listens', flush=True)\npeer, _ = sock.accept()\n"
              "print(peer.recv(100), flush=True)")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as fake:
        assert fake.stdout.readline() == "listens\n"
        with pytest.raises(Unauthorized, match=f"belongs to user {OTHER}"):
            connect(hello(), timeout=5)
        assert fake.stdout.readline() == "b''\n"
    (runtime.path / "daemon.sock").unlink()


@as_root
def test_a_socket_on_which_the_machine_s_service_manager_listens_is_taken(public: Path):
    # It is as that of ``gpu-worker@alice.socket``, in a directory of alice's own: the first client makes it start.
    directory = public / "activated"
    directory.mkdir(mode=0o700)
    os.chown(directory, OTHER, OTHER)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "daemon.sock"))
        os.chown(directory / "daemon.sock", OTHER, OTHER)
        listener.listen()
        output = as_other(f"""
from gpu_worker.system.admin import open_connection
from gpu_worker.system.paths import locate
with open_connection(locate({str(directory)!r}), False, "", 5.0):
    print("connected")
""")
    assert output == "connected\n"


def test_another_application_of_the_same_user_needs_the_secret(worker: Runtime):
    other = b"t" * 32
    for attempt in (lambda: connect(hello(secret=other), timeout=5), lambda: worker.lease(secret=other),
                    lambda: administer(GetSnapshot("app", other, 1)),
                    lambda: administer(Discard("app", other, (1,)))):
        with pytest.raises(Unauthorized, match="secret"):
            attempt()


# -- the runtime directory, its sockets and logs ----------------------------------------------------------------------

@as_root
def test_another_user_cannot_read_or_replace_what_is_in_the_runtime_directory(worker: Runtime):
    path = str(worker.path)
    attempts = {
        "list": f"os.listdir({path!r})",
        "log": f"open({path + '/daemon.log'!r}).read()",
        "process-log": f"open({path + '/process.log'!r}).read()",
        "crash-record": f"open({path + '/sessions/app.box'!r}, 'rb').read()",
        "plant": f"open({path + '/daemon.lock'!r}, 'a')",
        "replace-socket": f"os.unlink({path + '/daemon.sock'!r})",
        "replace-directory": f"os.rename({path!r}, {path + '-taken'!r})",
        "link": f"os.symlink('/etc/passwd', {path + '/process.log.1'!r})",
        "mode": f"os.chmod({path!r}, 0o777)",
        "socket": f"socket.socket(socket.AF_UNIX).connect({path + '/daemon.sock'!r})",
        "session": f"socket.socket(socket.AF_UNIX).connect({path + '/sessions/app.sock'!r})",
    }
    assert refusals(attempts) == dict.fromkeys(attempts, DENIED)


def test_every_file_is_its_owner_s_alone_whatever_the_mask_is(runtime: Runtime):
    before = os.umask(0)
    runtime.path.mkdir(mode=0o700)
    (runtime.path / "daemon.log").touch()       # as an older version left it
    try:
        runtime.start()
        with runtime.client() as client:
            ask(client)
            files = [runtime.path, *runtime.path.rglob("*")]
            assert {path.name for path in files} >= {"daemon.sock", "daemon.log", "process.log", "app.sock", "app.box"}
            assert {path.name: oct(path.lstat().st_mode & 0o077) for path in files} == \
                {path.name: "0o0" for path in files}
    finally:
        os.umask(before)


def refused(error: type[VisparkError], says: str) -> None:
    with pytest.raises(error, match=says):
        connect(hello(), timeout=5)
    with pytest.raises(error, match=says):
        administer(Status())
    with pytest.raises(error, match=says):
        exit_status("app", 1)


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o710, 0o701])
def test_a_directory_open_to_others(runtime: Runtime, mode: int):
    runtime.path.mkdir(mode=0o700)
    runtime.path.chmod(mode)
    refused(Unauthorized, f"has mode {mode:04o}; it must be 0700")


def test_a_directory_that_is_a_link(runtime: Runtime):
    elsewhere = runtime.path.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    runtime.path.symlink_to(elsewhere)
    refused(Unauthorized, "is a link")
    runtime.path.unlink()


@as_root
def test_a_directory_of_another_user(runtime: Runtime):
    runtime.path.mkdir(mode=0o700)
    os.chown(runtime.path, OTHER, OTHER)
    refused(Unauthorized, f"belongs to user {OTHER}")


@as_root
def test_a_daemon_starts_in_no_directory_of_another_user_s(runtime: Runtime):
    runtime.path.mkdir(mode=0o700)
    os.chown(runtime.path, OTHER, OTHER)
    ended = runtime.run("start")
    assert ended.returncode and f"belongs to user {OTHER}" in ended.stderr
    assert not list(runtime.path.iterdir())


# -- the kernel cache -------------------------------------------------------------------------------------------------

@pytest.fixture
def cache(public: Path) -> KernelCache:
    """Make a cache with one entry."""
    kernels = KernelCache(public / "kernels")
    kernels.put(b"ours", "source")
    return kernels


@as_root
def test_another_user_cannot_read_or_fill_the_kernel_cache(cache: KernelCache):
    entry, = cache.directory.iterdir()
    attempts = {
        "list": f"os.listdir({str(cache.directory)!r})",
        "read": f"open({str(entry)!r}, 'rb').read()",
        "plant": f"open({str(cache.directory / 'planted')!r}, 'wb')",
        "replace": f"os.unlink({str(entry)!r})",
        "directory": f"os.rename({str(cache.directory)!r}, {str(cache.directory) + '-taken'!r})",
    }
    assert refusals(attempts) == dict.fromkeys(attempts, DENIED)


@as_root
@pytest.mark.parametrize("by", ["owner", "group", "world", "link"])
def test_an_entry_that_another_user_planted_is_not_loaded(cache: KernelCache, tmp_path: Path, by: str):
    """Plant one with a checksum that is right, in a directory that was open for a while, and is ours alone by now."""
    entry, = cache.directory.iterdir()
    assert cache.file("source") == entry
    planted = KernelCache(tmp_path / "planted")
    planted.put(b"theirs", "source")
    theirs, = planted.directory.iterdir()
    entry.unlink()
    if by == "link":
        os.chown(theirs, OTHER, OTHER)
        entry.symlink_to(theirs)
    else:
        shutil.copyfile(theirs, entry)
        entry.chmod({"owner": 0o600, "group": 0o620, "world": 0o602}[by])
        os.chown(entry, OTHER if by == "owner" else os.geteuid(), os.getegid())
    for reader in (cache, KernelCache(cache.directory)):
        assert (reader.get("source"), reader.file("source")) == (None, None)
    cache.put(b"ours", "source")
    assert cache.get("source") == b"ours"
    assert stat.S_IMODE(entry.lstat().st_mode) == 0o600 and entry.lstat().st_uid == os.geteuid()


@as_root
def test_a_kernel_cache_of_another_user_s_is_refused(tmp_path: Path):
    (tmp_path / "kernels").mkdir(mode=0o700)
    os.chown(tmp_path / "kernels", OTHER, OTHER)
    with pytest.raises(DeviceUnavailable, match="could be written by others"):
        KernelCache(tmp_path / "kernels")


# -- processes: memfds, memory, environment ---------------------------------------------------------------------------

def memfds(files: Path) -> list[str]:
    """Return the descriptors of memfds in a process's directory of descriptors."""
    names = []
    for path in files.iterdir():
        with contextlib.suppress(FileNotFoundError):        # it was closed meanwhile
            if os.readlink(path).startswith("/memfd:"):
                names.append(path.name)
    return names


@as_root
def test_another_user_cannot_open_memfds_or_look_into_processes(worker: Runtime):
    with Payload.create(4096) as payload:
        payload.array[:] = 7
        exchange_descriptors(PutSnapshot("app", SECRET, 1, (), 0, 4096), [payload.descriptor])
        attempts = {"client": f"open('/proc/{os.getpid()}/fd/{payload.descriptor}', 'rb').read()"}
        for who, pid in zip(("daemon", "process"), processes(worker), strict=True):
            files = Path(f"/proc/{pid}/fd")
            held = memfds(files)
            assert held or who == "process", "the snapshot is nowhere"
            attempts |= {f"{who}-{name}": f"open('{files / name}', 'rb').read()" for name in held}
            attempts |= {f"{who}-list": f"os.listdir('{files}')",
                         f"{who}-memory": f"open('/proc/{pid}/mem', 'rb').read(1)",
                         f"{who}-maps": f"open('/proc/{pid}/maps').read()",
                         f"{who}-environment": f"open('/proc/{pid}/environ').read()",
                         f"{who}-signal": f"os.kill({pid}, 0)"}
        assert refusals(attempts) == dict.fromkeys(attempts, DENIED)


def test_the_secret_is_in_no_argument_environment_or_log(worker: Runtime):
    with contextlib.suppress(VisparkError):
        connect(hello(secret=SECRET[:-1] + b"t"), timeout=5)
    for pid in processes(worker):
        for name in ("cmdline", "environ"):
            assert SECRET not in Path(f"/proc/{pid}/{name}").read_bytes()
    logs = worker.logs()
    assert "refused" in logs
    assert SECRET.decode() not in logs and SECRET.hex() not in logs


def test_the_secret_is_not_in_what_records_show_of_themselves():
    options = hello().options
    for record in (hello(), PutSnapshot("app", SECRET, 1, (), 0, 8), GetSnapshot("app", SECRET, 1),
                   Discard("app", SECRET, ()),
                   Configuration("app", SECRET, "an application", options, 1, "worker", "box"),
                   Registration("app", SECRET, "an application", options, 1, 2, ())):
        assert "app" in repr(record) and SECRET.decode() not in repr(record)


def test_a_cluster_s_key_that_others_may_read_is_refused(tmp_path: Path, runtime: Runtime):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 64)
    key.chmod(0o640)
    ended = runtime.run("start", "--listen", "127.0.0.1:0", "--key", str(key))
    assert ended.returncode and "0600" in ended.stderr
    assert OptionError.__name__ not in ended.stderr


# -- what programs leave on disk, and what ranks share ----------------------------------------------------------------

@as_root
def test_another_user_cannot_read_what_programs_keep(public: Path):
    # Records, sources and results are in all of these; the mask would let everybody read them.
    before = os.umask(0)
    try:
        RunCapture("job.py", [], digest_of("x"), arrays={"a0": np.arange(3)}).write(public / "capture")
        history = History(public / "history.db")
        Journal(str(public / "journal.jsonl")).close()
        with opened_results(public / "results"):
            pass
        spilled = SpillFiles(str(public)).write(np.arange(64, dtype=np.uint8))
    finally:
        os.umask(before)
    assert not [path for path in public.iterdir() if path.stat().st_mode & 0o077]
    files = {"capture": public / "capture" / "capture.json", "history": history.path,
             "journal": public / "journal.jsonl", "results": public / "results"}
    assert all(path.exists() for path in files.values()) and spilled[63] == 63
    attempts = {name: f"open({str(path)!r}, 'rb').read()" for name, path in files.items()}
    attempts |= {f"write-{name}": f"open({str(path)!r}, 'ab')" for name, path in files.items()}
    attempts |= {f"remove-{name}": f"os.unlink({str(path)!r})" for name, path in files.items()}
    assert refusals(attempts) == dict.fromkeys(attempts, DENIED)


def test_memory_that_ranks_share_over_ucx_is_their_user_s_alone(monkeypatch: pytest.MonkeyPatch):
    # Segments of POSIX lose their names at once, and then lie behind the process's descriptors, as memfds do.
    pytest.importorskip("libucx")
    monkeypatch.delenv("UCX_TLS", raising=False)
    script = """
import os
from gpu_worker.exchange.ucx.world import OpenedWorld
world = OpenedWorld()
links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
print(*(found for found in map(os.readlink, filter(os.path.lexists, links)) if "/dev/shm" in found), sep="\\n")
for line in open("/proc/sysvipc/shm").readlines()[1:]:
    if int(line.split()[4]) == os.getpid():
        print("System V", line)
"""
    links = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                           check=True).stdout
    assert links.count("/dev/shm/ucx") == links.count("(deleted)") == len(links.splitlines()) > 0, links


# -- TCP --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("secret", [b"", b"\0" * 32, b"t" * 32], ids=["none", "zeros", "another"])
def test_over_tcp_without_the_secret(reach, secret: bytes):
    with pytest.raises(Unauthorized, match="session app has another secret"):
        visiting(reach, secret=secret)


def test_over_tcp_with_another_session_s_secret(executor, reach):
    theirs = hello("theirs", reach=HOST, secret=b"t" * 32)
    with connect(theirs, runtime_dir=executor.runtime_dir) as other:
        with pytest.raises(Unauthorized, match="session app has another secret"):
            visiting(reach, secret=theirs.secret)
        with pytest.raises(Unauthorized, match="another certificate"):
            visiting(reach, session="theirs", secret=theirs.secret)
        with visiting(other.reach, session="theirs", secret=theirs.secret) as driver:
            ask(driver)


def test_over_tcp_a_proof_is_of_no_use_again(reach, monkeypatch: pytest.MonkeyPatch):
    """Not even with the client's challenge of then, to whoever has heard both: the worker's own is another."""
    heard: list[bytes] = []

    def overheard(secret: bytes, side: str, *named) -> bytes:
        proof = genuine(secret, side, *named)
        if side == "client":
            heard.append(proof)
        return heard[0] if side == "client" else proof

    genuine = tcp.proof
    monkeypatch.setattr(tcp, "proof", overheard)
    monkeypatch.setattr(tcp, "nonce", lambda: b"n" * 32)
    with visiting(reach) as driver:
        ask(driver)
    with pytest.raises(Unauthorized, match="session app has another secret"):
        visiting(reach)
    assert len(heard) == 2 and heard[0] != heard[1]


def test_over_tcp_the_worker_s_proof_is_not_the_client_s(reach, monkeypatch: pytest.MonkeyPatch):
    genuine = tcp.proof
    monkeypatch.setattr(tcp, "proof", lambda secret, _, *named: genuine(secret, "worker", *named))
    with pytest.raises(Unauthorized, match="session app has another secret"):
        visiting(reach)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"vispark 1 app\nplain", b"\0" * 64],
                         ids=["http", "another-version", "zeros"])
def test_over_tcp_plain_text_is_answered_with_one_line(reach, data: bytes):
    answer = rest(knocking(reach, data + bytes(96)))
    assert answer.startswith(b"refused ProtocolError") and answer.count(b"\n") == 1


def test_over_tcp_nothing_is_said_in_the_clear_after_the_first_line(reach):
    body = encode(hello(role="driver", client_pid=0), Hello)
    frame = len(body).to_bytes(4, "big") + bytes(8) + body
    answer = rest(knocking(reach, f"vispark {VERSION} app\n".encode() + frame))
    assert b"worker" not in answer and b"epoch" not in answer and len(answer) < 64

