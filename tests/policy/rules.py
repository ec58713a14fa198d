"""The rules that hold for the repository's files; each function gives the problems of one file's content."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

#: What the files below a path may not import, and the exceptions to it.
_FORBIDDEN = {
    "gpu_worker/": ({"pyspark", "vispark"}, ()),
    "vispark/": ({"gpu_worker"}, ("gpu_worker.protocol", "gpu_worker.client", "gpu_worker.commands.web",
                                  "gpu_worker.commands.deployment")),
    "": ({"pycuda", "mpi4py"}, ()),
}
_ONLY_IN = {"pycuda": ("gpu_worker/device/cuda/layer.py",),
            "mpi4py": ("gpu_worker/exchange/mpi/rank.py", "benchmarks/halo_rank.py")}

#: The loops that serve others: each catches everything at one place, logs it with its trace, and goes on, and
#: ``tests/unit/test_supervisors.py`` injects a defect at each of their calls.
_SUPERVISORS = {
    "gpu_worker/client/connection.py": {"_renewed"},                        # a lease is taken anew
    "gpu_worker/daemon/daemon.py": {"run", "_serve"},                       # the daemon's loop; a connection
    "gpu_worker/daemon/supervisor.py": {"_admit", "_end_session", "_record_death"},    # starts and ends of sessions
    "gpu_worker/daemon/tcp_listener.py": {"_serve"},                        # a connection over TCP
    "gpu_worker/execution/scheduling/in_flight.py": {"reap"},                        # plans that are complete
    "gpu_worker/exchange/mpi/cluster.py": {"_accept", "_serve", "_answer"},          # other nodes' daemons
    "gpu_worker/server/chunk_reader.py": {"_read", "_rest"},                # pieces of partitions
    "gpu_worker/server/device_process.py": {"run", "_take_connections", "_have_daemon", "_serve", "_converse"},
    "gpu_worker/server/publications.py": {"_do"},                           # the publications' thread
    "gpu_worker/server/snapshots.py": {"_do"},                              # the snapshots' thread
    "gpu_worker/system/crash_record.py": {"_watch"},                        # deadlines
    "gpu_worker/system/watcher.py": {"wait"},                               # callbacks
    "vispark/migrate/commands/record_command.py": {"command"},              # the program, which is the user's
    "vispark/runtime/executor/tasks.py": {"__call__"},                      # a task's function, which is the user's
    "vispark/runtime/driver/garbage_collector.py": {"_collect_until_closed"},
}

#: Names that say for which device a source is compiled, and files that may ask them: each device's own.
_TARGETS = re.compile(r"\b(__CUDA_ON_HOST__|__CUDA_ARCH\w*|__CUDACC\w*|VISPARK_ON_\w+|VISPARK_AS_ON_\w+)\b")
_OF_TARGETS = ("gpu_worker/device/host/", "gpu_worker/device/cuda/")

#: Names of kinds of devices and transports; "host" is a place of memory too.
_KINDS = frozenset(["cuda", "null", "unix", "tcp", "relay"])

_PICKLES = {"pickle", "cloudpickle", "dill", "marshal"}

_MARKERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
_HOMES = re.compile(r"(?<![\w.])/(home|root|Users|work)/\w+")
_REGISTRIES = re.compile(r"\b(pypi\.org|pythonhosted\.org|deb\.debian\.org|npmjs\.(org|com))\b")


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Everything in a file; several rules look at it."""
    return tuple(ast.walk(ast.parse(source)))


def imports(source: str, path: str) -> Iterator[tuple[int, str]]:
    """Yield every imported name in full, with its line; ``from a import b`` gives ``a.b``."""
    package = path.removesuffix("/__init__.py").removesuffix(".py").split("/")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def forbidden_imports(source: str, path: str) -> Iterator[str]:
    """Yield imports against the one way that DESIGN gives them."""
    for line, name in imports(source, path):
        top = name.partition(".")[0]
        for below, (forbidden, but) in _FORBIDDEN.items():
            allowed = path in _ONLY_IN.get(top, ()) or any(name == one or name.startswith(one + ".") for one in but)
            if path.startswith(below) and top in forbidden and not allowed:
                yield f"{path}:{line} imports {name}"


def inner_imports(source: str, path: str) -> Iterator[str]:
    """Yield imports inside functions."""
    for function in nodes(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield f"{path}:{node.lineno} imports inside {function.name}()"


def broad_excepts(source: str, path: str) -> Iterator[str]:
    """Yield handlers of everything: bare, ``Exception``, ``BaseException``, and ``suppress`` of these.

    ``except Exception`` is for supervisors (:data:`_SUPERVISORS`), once in each.
    """
    allowed = {handler for function in nodes(source)
               if isinstance(function, ast.FunctionDef) and function.name in _SUPERVISORS.get(path, ())
               for handler in [node for node in ast.walk(function)
                               if isinstance(node, ast.ExceptHandler) and last_name(node.type) == "Exception"][:1]}
    for node in nodes(source):
        if node in allowed:
            continue
        caught: list[ast.expr] = []
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{path}:{node.lineno} has a bare except"
                continue
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        elif isinstance(node, ast.Call) and last_name(node.func) == "suppress":
            caught = node.args
        for name in {last_name(one) for one in caught} & {"Exception", "BaseException"}:
            yield f"{path}:{node.lineno} catches {name}"


def unpickling(source: str, path: str) -> Iterator[str]:
    """Reading of pickles in the packages, where only a partition's records may be read so."""
    if not path.startswith(("vispark/", "gpu_worker/")) or path.startswith("vispark/data/records"):
        return
    for node in nodes(source):
        if (isinstance(node, ast.Attribute) and node.attr in ("load", "loads", "Unpickler")
                and last_name(node.value) in _PICKLES):
            yield f"{path}:{node.lineno} uses {last_name(node.value)}.{node.attr}"
    for line, name in imports(source, path):
        module, _, member = name.rpartition(".")
        if module in _PICKLES and member in ("load", "loads", "Unpickler"):
            yield f"{path}:{line} imports {name}"


def markers(text: str, path: str) -> Iterator[str]:
    """Yield notes of unfinished work."""
    for number, line in enumerate(text.splitlines(), 1):
        if _MARKERS.search(line):
            yield f"{path}:{number} marks unfinished work"


def machine_names(text: str, path: str, hostname: str) -> Iterator[str]:
    """Yield names of this machine, of package registries, and paths that only one machine has."""
    own = re.compile(rf"\b{re.escape(hostname)}\b") if len(hostname) > 5 and hostname != "localhost" else None
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (_HOMES, _REGISTRIES, own):
            if pattern and (match := pattern.search(line)):
                yield f"{path}:{number} names {match.group()}"


def last_name(node: ast.expr | None) -> str:
    """Return the last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def target_names(source: str, path: str) -> Iterator[str]:
    """Yield questions for which device a kernel is compiled, beyond the devices' own headers (``vispark/target.h``)."""
    if not path.startswith(("vispark/", "gpu_worker/")) or path.startswith(_OF_TARGETS):
        return
    for number, line in enumerate(source.splitlines(), 1):
        for match in _TARGETS.finditer(line):
            yield f"{path}:{number} asks {match[0]}; vispark/target.h is to say what differs"


def kind_names(source: str, path: str) -> Iterator[str]:
    """Yield comparisons with the name of a kind of devices or transports; their tables have capabilities to ask."""
    if not path.startswith(("vispark/", "gpu_worker/")):
        return
    for node in nodes(source):
        if isinstance(node, ast.Compare):
            compared = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)} & _KINDS
            yield from (f"{path}:{node.lineno} compares with {name!r}; ask the kind for a capability"
                        for name in sorted(compared))
