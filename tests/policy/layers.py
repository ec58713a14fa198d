"""The packages in the order of the data, and what each may import: itself, and what its line names."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from tests.policy import rules

#: What both sides of a socket need, the lowest first. In every line a package's imports are named in this order.
_PROTOCOL = ("gpu_worker.protocol",)
_WORKER = (*_PROTOCOL, "gpu_worker.system")
_DEVICE = (*_WORKER, "gpu_worker.device")
_BASE = (*_PROTOCOL, "vispark.errors", "vispark._utils")
_GRID = (*_BASE, "vispark.data.storage")
_RECORDS = (*_GRID, "vispark.data.grid", "vispark.data.records")
_LANGUAGE = (*_BASE, "vispark.translate")
_FOLD = (*_LANGUAGE, "vispark.data.storage", "vispark.data.grid", "vispark.data.records")
_PLAN = (*_FOLD, "vispark.plan.fold", "vispark.plan")
_RUNTIME = (*_PLAN, "vispark.plan.lower", "vispark.options", "vispark.runtime.profiling", "vispark.runtime")
_API = (*_RUNTIME, "vispark.data.tables", "vispark.api")

#: Of both projects the packages at the top, in the order of the data, and who runs each: the driver, Spark's tasks, a
#: node's daemon, a session's device process, or a command that a user types. Each one's docstring says it too.
ORDER: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu_worker": {
        "protocol": ("driver", "task", "daemon", "device process", "command"),
        "system": ("driver", "task", "daemon", "device process", "command"),
        "client": ("driver", "task", "device process"),
        "device": ("device process",),
        "exchange": ("daemon", "device process"),
        "execution": ("device process",),
        "server": ("device process",),
        "daemon": ("daemon",),
        "commands": ("command",),
    },
    "vispark": {
        "_utils": ("driver", "task", "command"),
        "data": ("driver", "task"),
        "translate": ("driver", "task"),
        "plan": ("driver", "task"),
        "runtime": ("driver", "task"),
        "api": ("driver", "task"),
        "ml": ("driver",),
        "migrate": ("driver", "task", "command"),
    },
}

#: Package or module: the packages that it may import. A package below another has a contract of its own, which the one
#: above does not include. The driver and Spark's tasks run vispark; daemons and device processes run gpu_worker, but
#: for its protocol and client, which both sides run.
CONTRACTS: dict[str, tuple[str, ...]] = {
    "gpu_worker.protocol": (),
    "gpu_worker.system": _PROTOCOL,
    "gpu_worker.client": _WORKER,
    "gpu_worker.device": _WORKER,
    "gpu_worker.device.memory": _DEVICE,
    "gpu_worker.exchange": _DEVICE,
    "gpu_worker.exchange.mpi": (*_DEVICE, "gpu_worker.exchange"),
    "gpu_worker.exchange.ucx": (*_DEVICE, "gpu_worker.exchange"),
    "gpu_worker.execution": (*_DEVICE, "gpu_worker.device.memory", "gpu_worker.exchange"),
    "gpu_worker.server": (*_DEVICE, "gpu_worker.client", "gpu_worker.device.memory", "gpu_worker.exchange",
                          "gpu_worker.exchange.mpi", "gpu_worker.execution"),
    "gpu_worker.daemon": (*_WORKER, "gpu_worker.exchange.mpi"),
    "gpu_worker.commands.options": _WORKER,
    "gpu_worker.commands.deployment": _WORKER,
    "gpu_worker.commands.web": _PROTOCOL,
    "gpu_worker.commands.monitor": (*_WORKER, "gpu_worker.commands.options", "gpu_worker.commands.web"),
    "gpu_worker.commands": (*_WORKER, "gpu_worker.commands.options", "gpu_worker.exchange.mpi", "gpu_worker.daemon"),
    "gpu_worker.cli": (*_PROTOCOL, "gpu_worker.commands.options", "gpu_worker.commands.deployment",
                       "gpu_worker.commands.monitor", "gpu_worker.commands"),
    "vispark.errors": _PROTOCOL,
    "vispark.options": (*_PROTOCOL, "vispark.errors"),
    "vispark.random": (),
    "vispark._utils": (*_PROTOCOL, "vispark.errors"),
    "vispark.data": (),
    "vispark.data.storage": _BASE,
    "vispark.data.grid": _GRID,
    "vispark.data.records": (*_GRID, "vispark.data.grid"),
    "vispark.data.tables": _RECORDS,
    "vispark.translate": _BASE,
    "vispark.plan.fold": _FOLD,
    "vispark.plan": (*_FOLD, "vispark.plan.fold"),
    "vispark.plan.lower": _PLAN,
    "vispark.runtime.profiling": _BASE,
    "vispark.runtime": (*_PLAN, "vispark.plan.lower", "vispark.options", "vispark.runtime.profiling",
                        "gpu_worker.client"),
    "vispark.runtime.monitor": (*_RUNTIME, "gpu_worker.client", "gpu_worker.commands.web"),
    "vispark.api": (*_RUNTIME, "vispark.data.tables"),
    "vispark.api.udfs": _API,
    "vispark.api.notebook": ("vispark.errors", "vispark._utils", "vispark.runtime.profiling"),
    "vispark.ml": (*_API, "vispark.random", "vispark.api.udfs"),
    "vispark.migrate.clusters": ("gpu_worker.protocol", "gpu_worker.commands.deployment", "vispark.errors",
                                 "vispark.options"),
    "vispark.migrate": (*_API, "gpu_worker.commands.deployment", "gpu_worker.commands.web",
                        "vispark.migrate.clusters"),
}

#: What the migration of a program needs of it: its text, verdicts on it, what a run left, the time of a pass.
_HELPERS = ("errors", "extra_packages", "figure_texts", "written_files")
_RECORDED = (*_HELPERS, "source", "rules", "capture")
_STEPS = (*_RECORDED, "predict")

#: Packages with an order of their own within: what each package and module directly below may import of the others.
#: Modules below that are not named may import all of them.
_WITHIN: dict[str, dict[str, tuple[str, ...]]] = {
    "vispark.translate": {
        "ir": (),
        "language": ("ir",),
        "frontend": ("ir", "language"),
        "codegen": ("ir", "language", "frontend"),
        "kernels": ("ir", "language", "frontend", "codegen"),
        "stencils": ("ir", "language", "frontend", "codegen", "kernels"),
        "nearest": ("ir", "language", "frontend", "codegen", "kernels"),
    },
    "gpu_worker.execution": {
        "plan_checks": (),
        "scheduling": (),
        "memory": ("plan_checks", "scheduling"),
        "folds": ("memory",),
        "launches": ("scheduling", "memory", "folds"),
        "keys": ("scheduling", "memory", "folds"),
        "grid": ("scheduling", "memory"),
        "replay": ("scheduling", "memory", "grid"),
        "passes": ("scheduling", "memory", "folds", "launches", "keys", "grid", "replay"),
        "steps": ("plan_checks", "scheduling", "memory", "folds", "launches", "keys", "grid", "passes"),
        "plans": ("plan_checks", "scheduling", "memory", "launches", "grid", "replay", "passes", "steps"),
        "executor": ("scheduling", "folds", "grid", "replay", "passes", "plans"),
    },
    "vispark.api": {
        "rdds": (),
        "operations": ("rdds",),
        "keys": ("rdds", "operations"),
        "actions": ("rdds", "operations", "keys"),
        "transformations": ("rdds", "keys"),
        "vrdd": ("rdds", "operations", "keys", "actions", "transformations"),
        "sources": ("rdds", "actions", "vrdd"),
        "grids": ("rdds", "operations", "vrdd"),
        "udfs": ("rdds",),
        "notebook": (),
        "patch_pyspark": ("vrdd",),
    },
    "vispark.migrate": {
        "errors": (),
        "extra_packages": ("errors",),
        "figure_texts": (),
        "written_files": ("errors",),
        "source": _HELPERS,
        "rules": (*_HELPERS, "source"),
        "capture": (*_HELPERS, "source", "rules"),
        "predict": _RECORDED,
        "record": _STEPS,
        "qualify": _STEPS,
        "port": (*_STEPS, "qualify"),
        "validate": (*_HELPERS, "capture"),
        "tune": (*_HELPERS, "capture", "record", "validate"),
        "store": (*_STEPS, "qualify", "validate"),
        "clusters": (),
        "report": (*_HELPERS, "validate", "store", "clusters"),
        "commands": (*_STEPS, "record", "qualify", "port", "validate", "tune", "store", "clusters", "report"),
        "cli": ("commands",),
        "__main__": ("cli",),
    },
}
WITHIN = {package: {f"{package}.{name}": tuple([f"{package}.{each}" for each in allowed])
                    for name, allowed in contracts.items()} for package, contracts in _WITHIN.items()}

#: Of these the packages, in order, and who runs each, as their docstrings say.
ORDER_WITHIN: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu_worker.execution": dict.fromkeys(
        ("scheduling", "memory", "folds", "launches", "keys", "grid", "replay", "passes", "steps", "plans"),
        ("device process",)),
    "vispark.api": {
        "rdds": ("driver", "task"),
        "operations": ("driver",),
        "keys": ("driver", "task"),
        "actions": ("driver", "task"),
        "sources": ("driver", "task"),
        "grids": ("driver", "task"),
        "udfs": ("driver", "task"),
        "notebook": ("driver",),
    },
    "vispark.migrate": {
        "source": ("driver", "command"),
        "rules": ("driver", "command"),
        "capture": ("driver", "command"),
        "predict": ("driver", "command"),
        "record": ("driver", "task"),
        "qualify": ("command",),
        "port": ("command",),
        "validate": ("command",),
        "tune": ("driver", "task", "command"),
        "store": ("command",),
        "clusters": ("driver", "task", "command"),
        "report": ("command",),
        "commands": ("command",),
    },
}

#: Modules that name in strings what imports them, or what is of packages that their own may not import: the packages
#: named so. All other strings that are a module's name count as imports of it.
NAMED: dict[str, tuple[str, ...]] = {
    # Tables of entries, each opened when its name is asked for.
    "gpu_worker.protocol.device_kinds": ("gpu_worker.device",),
    "gpu_worker.protocol.exchange_kinds": ("gpu_worker.exchange.mpi", "gpu_worker.exchange.ucx"),
    "gpu_worker.protocol.transport_kinds": ("gpu_worker.client",),
    "gpu_worker.commands.deployment.platforms": ("gpu_worker.commands.deployment.emr",),
    # Functions that a translated one may call enter the registry where they are written.
    "vispark.translate.language.registry": ("vispark.translate.language", "vispark.translate.codegen"),
    # The key of a block comes out of a pickle with the grid that users have.
    "vispark.data.grid.key": ("vispark.api.grids",),
}

_MODULE = re.compile(r"((?:vispark|gpu_worker)(?:\.\w+)+)(?::\w+|\.)?")

#: The packages' roots gather what is public and may import everything.
_ROOTS = ("vispark", "gpu_worker", "gpu_worker.__main__")


def module_of(path: str) -> str:
    """Return the module that a file of the repository is."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_of(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _package_of(name: str, packages: Iterable[str]) -> str | None:
    """Return the innermost of some packages that a module, or a name in one, is of."""
    return max((each for each in packages if _is_of(name, each)), key=len, default=None)


def below(above: str, paths: Iterable[str]) -> set[str]:
    """Return the packages, by their files' paths, that lie directly below one."""
    parts = above.split(".")
    return {names[len(parts)] for path in paths
            if (names := path.split("/"))[:len(parts)] == parts and len(names) > len(parts) + 1}


def against_order(contracts: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield contracts that name a package whose place in the order of the data is behind the own one."""
    places = {f"{above}.{package}": place for above, packages in (ORDER | ORDER_WITHIN).items()
              for place, package in enumerate(packages)}
    for package, allowed in contracts.items():
        own = _package_of(package, places)
        for name in allowed if own else ():
            other = _package_of(name, places)
            if other and other.rpartition(".")[0] == own.rpartition(".")[0] and places[other] > places[own]:
                yield f"{package} may import {name}, which lies behind it in the order of the data"


def against_docstrings(docstring: str, above: str, package: str) -> Iterator[str]:
    """Yield the place in the order of the data, and who runs it, where a package's docstring does not say them."""
    packages = (ORDER | ORDER_WITHIN)[above]
    wanted = f"Place {list(packages).index(package) + 1} of {len(packages)} in " \
             f"{'the order of the data' if above in ORDER else f'``{above}``'}; run by: {', '.join(packages[package])}."
    if wanted not in " ".join(docstring.split()):
        yield f"{above.replace('.', '/')}/{package}/__init__.py is to say: {wanted}"


def named(source: str, modules: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield the modules that strings name, with the lines: ``package.module``, ``package.module:name``, and the
    beginning of an f-string. Those behind ``-m`` are processes', which import them elsewhere.
    """
    started = {behind for node in rules.nodes(source) if isinstance(node, ast.List | ast.Tuple)
               for word, behind in pairwise(node.elts) if isinstance(word, ast.Constant) and word.value == "-m"}
    for node in rules.nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in started:
            match = _MODULE.fullmatch(node.value)
            if match and match[1] in modules:
                yield node.lineno, match[1]


def _imported(source: str, path: str, modules: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield a file's imports, and modules that it names in strings otherwise than :data:`NAMED` has it.

    Packages that it is in are imported before it anyway.
    """
    yield from rules.imports(source, path)
    module = module_of(path)
    yield from ((line, name) for line, name in named(source, modules)
                if not _is_of(module, name) and not any(_is_of(name, each) for each in NAMED.get(module, ())))


def against_contracts(source: str, path: str, modules: Collection[str]) -> Iterator[str]:
    """Yield imports of packages that a file's package may not import, under ``TYPE_CHECKING`` and in strings too.

    Parameters
    ----------
    source, path : str
        The file.
    modules : collection of str
        All modules that there are.
    """
    module = module_of(path)
    if module in _ROOTS or not module.startswith(("vispark.", "gpu_worker.")):
        return
    for contracts, top in ((CONTRACTS, ("vispark", "gpu_worker")), *((WITHIN[above], (above,)) for above in WITHIN)):
        package = _package_of(module, contracts)
        if package is None:
            if contracts is CONTRACTS:
                yield f"{path} is in no package that has a contract"
            continue
        allowed = (package, *contracts[package])
        for line, name in _imported(source, path, modules):
            if not any(_is_of(name, each) for each in top):
                continue
            if _package_of(name, contracts) not in allowed:
                yield f"{path}:{line} {package} may not import {name}"


def edges(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports anywhere, or names in strings, by the sources of files."""
    modules = {module_of(path): path for path in sources}
    return {module: {target for _, name in _imported(sources[path], path, modules)
                     for target in (name, name.rpartition(".")[0]) if target in modules and target != module
                     and not (target != name and name in modules)}
            for module, path in modules.items()}


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle of a graph of imports, its first module again at the end; empty where there is none."""
    done: set[str] = set()

    def search(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module):], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            if loop := search(target, [*way, module]):
                return loop
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])
