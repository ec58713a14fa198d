"""The packages in the order of the data, and what each may import: itself, and what its line names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tests.policy import rules

#: What both sides of a socket need, the lowest first. In every line a package's imports are named in this order.
_PROTOCOL = ("gpu_worker.protocol",)
_WORKER = (*_PROTOCOL, "gpu_worker.system")
_DEVICE = (*_WORKER, "gpu_worker.device")
_GRID = (*_PROTOCOL, "vispark.errors", "vispark._utils", "vispark.storage")
_LANGUAGE = (*_PROTOCOL, "vispark.errors", "vispark._utils", "vispark.translate")
_PLAN = (*_LANGUAGE, "vispark.storage", "vispark.grid", "vispark.records", "vispark.fold", "vispark.plan")
_RECORDS = (*_GRID, "vispark.grid", "vispark.records")
_RUNTIME = (*_PLAN, "vispark.lower", "vispark.options", "vispark.profiling", "vispark.runtime")

#: Package or module: the packages that it may import. The driver and Spark's tasks run vispark; daemons and device
#: processes run gpu_worker, but for its protocol and client, which both sides run.
CONTRACTS: dict[str, tuple[str, ...]] = {
    "gpu_worker.protocol": (),
    "gpu_worker.system": _PROTOCOL,
    "gpu_worker.client": _WORKER,
    "gpu_worker.device": _WORKER,
    "gpu_worker.memory": _DEVICE,
    "gpu_worker.worlds": _DEVICE,
    "gpu_worker.mpi": (*_DEVICE, "gpu_worker.worlds"),
    "gpu_worker.ucx": (*_DEVICE, "gpu_worker.worlds"),
    "gpu_worker.execution": (*_DEVICE, "gpu_worker.memory", "gpu_worker.worlds"),
    "gpu_worker.server": (*_DEVICE, "gpu_worker.client", "gpu_worker.memory", "gpu_worker.worlds", "gpu_worker.mpi",
                          "gpu_worker.execution"),
    "gpu_worker.daemon": (*_WORKER, "gpu_worker.mpi"),
    "gpu_worker.deployment": _WORKER,
    "gpu_worker.cli_options": _WORKER,
    "gpu_worker.web": _PROTOCOL,
    "gpu_worker.monitor": (*_WORKER, "gpu_worker.cli_options", "gpu_worker.web"),
    "gpu_worker.commands": (*_WORKER, "gpu_worker.cli_options", "gpu_worker.mpi", "gpu_worker.daemon"),
    "gpu_worker.cli": (*_PROTOCOL, "gpu_worker.cli_options", "gpu_worker.deployment"),
    "vispark.errors": _PROTOCOL,
    "vispark.options": (*_PROTOCOL, "vispark.errors"),
    "vispark._utils": (*_PROTOCOL, "vispark.errors"),
    "vispark.random": (),
    "vispark.translate": _LANGUAGE,
    "vispark.storage": (*_PROTOCOL, "vispark.errors", "vispark._utils"),
    "vispark.grid": _GRID,
    "vispark.records": (*_GRID, "vispark.grid"),
    "vispark.tables": _RECORDS,
    "vispark.fold": (*_LANGUAGE, "vispark.storage", "vispark.grid", "vispark.records"),
    "vispark.plan": (*_LANGUAGE, "vispark.storage", "vispark.grid", "vispark.records", "vispark.fold"),
    "vispark.lower": _PLAN,
    "vispark.profiling": (*_PROTOCOL, "vispark.errors", "vispark._utils"),
    "vispark.runtime": (*_RUNTIME, "gpu_worker.client"),
    "vispark.api": (*_RUNTIME, "vispark.tables", "vispark.api"),
    "vispark.udfs": (*_RUNTIME, "vispark.tables", "vispark.api"),
    "vispark.ml": (*_RUNTIME, "vispark.tables", "vispark.api", "vispark.random", "vispark.udfs"),
    "vispark.monitor": (*_RUNTIME, "gpu_worker.client", "gpu_worker.web"),
    "vispark.notebook": ("vispark.errors", "vispark._utils", "vispark.profiling"),
    "vispark.clusters": ("gpu_worker.protocol", "gpu_worker.deployment", "vispark.errors", "vispark.options"),
    "vispark.migrate": (*_RUNTIME, "gpu_worker.deployment", "gpu_worker.web", "vispark.tables", "vispark.api",
                        "vispark.clusters"),
}

#: The same within the translator, in the order in which a function passes.
TRANSLATOR: dict[str, tuple[str, ...]] = {
    "vispark.translate.ir": (),
    "vispark.translate.language": ("vispark.translate.ir",),
    "vispark.translate.frontend": ("vispark.translate.ir", "vispark.translate.language"),
    "vispark.translate.codegen": ("vispark.translate.ir", "vispark.translate.language", "vispark.translate.frontend"),
}
for _package in ("kernels", "stencils", "nearest"):
    TRANSLATOR[f"vispark.translate.{_package}"] = (
        *TRANSLATOR["vispark.translate.codegen"], "vispark.translate.codegen", "vispark.translate.kernels")

#: The packages' roots gather what is public and may import everything.
_ROOTS = ("vispark", "gpu_worker", "gpu_worker.__main__")


def module_of(path: str) -> str:
    """The module that a file of the repository is."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_of(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def against_contracts(source: str, path: str) -> Iterator[str]:
    """Imports of packages that a file's package may not import, under ``TYPE_CHECKING`` too."""
    module = module_of(path)
    if module in _ROOTS or not module.startswith(("vispark.", "gpu_worker.")):
        return
    for contracts, top in ((CONTRACTS, ("vispark", "gpu_worker")), (TRANSLATOR, ("vispark.translate",))):
        package = next((each for each in contracts if _is_of(module, each)), None)
        if package is None:
            if contracts is CONTRACTS:
                yield f"{path} is in no package that has a contract"
            continue
        allowed = (package, *contracts[package])
        for line, name in rules.imports(source, path):
            is_ours = any(_is_of(name, each) for each in top)
            if is_ours and not any(_is_of(name, each) for each in allowed):
                yield f"{path}:{line} {package} may not import {name}"


def edges(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Of each module, by the sources of files, the modules that it imports anywhere."""
    modules = {module_of(path): path for path in sources}
    return {module: {target for _, name in rules.imports(sources[path], path)
                     for target in (name, name.rpartition(".")[0]) if target in modules and target != module
                     and not (target != name and name in modules)}
            for module, path in modules.items()}


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """A cycle of a graph of imports, its first module again at the end; empty where there is none."""
    done: set[str] = set()

    def search(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module):], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            if found := search(target, [*way, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])
