"""Each rule finds what it is there to find, and nothing else."""

from __future__ import annotations

import pytest

from tests.policy import rules

FOUND = [
    (rules.forbidden_imports, "gpu_worker/device/memory/bindings.py", "import pyspark.rdd"),
    (rules.forbidden_imports, "gpu_worker/device/memory/bindings.py", "from vispark import plan"),
    (rules.forbidden_imports, "vispark/runtime/client.py", "import gpu_worker"),
    (rules.forbidden_imports, "vispark/runtime/client.py", "from gpu_worker import daemon"),
    (rules.forbidden_imports, "vispark/runtime/client.py", "from gpu_worker.device.base import Device"),
    (rules.forbidden_imports, "vispark/runtime/client.py", "import gpu_worker.protocols"),
    (rules.forbidden_imports, "gpu_worker/device/host/device.py", "import pycuda.driver"),
    (rules.forbidden_imports, "benchmarks/floor.py", "from pycuda import driver"),
    (rules.inner_imports, "a.py", "def f():\n    import os\n"),
    (rules.inner_imports, "a.py", "class A:\n    async def f(self):\n        from os import path\n"),
    (rules.broad_excepts, "a.py", "try:\n    pass\nexcept:\n    pass\n"),
    (rules.broad_excepts, "a.py", "try:\n    pass\nexcept Exception:\n    pass\n"),
    (rules.broad_excepts, "a.py", "try:\n    pass\nexcept (OSError, BaseException) as e:\n    pass\n"),
    (rules.broad_excepts, "a.py", "with contextlib.suppress(Exception):\n    pass\n"),
    (rules.broad_excepts, "gpu_worker/system/watcher.py",
     "def other():\n    try:\n        pass\n    except Exception:\n        pass\n"),
    (rules.broad_excepts, "gpu_worker/system/watcher.py",
     "def wait():\n    try:\n        pass\n    except BaseException:\n        pass\n"),
    (rules.broad_excepts, "gpu_worker/system/watcher.py",
     "def wait():\n    try:\n        pass\n    except Exception:\n        pass\n"
     "    try:\n        pass\n    except Exception:\n        pass\n"),
    (rules.unpickling, "gpu_worker/daemon/daemon.py", "pickle.loads(b'')"),
    (rules.unpickling, "vispark/runtime/client.py", "from cloudpickle import loads"),
    (rules.kind_names, "vispark/api/rdds/explain.py", "way = worker.transport == 'relay'"),
    (rules.kind_names, "gpu_worker/execution/scheduling/streams.py", "if kind not in ('cuda', 'other'): pass"),
    (rules.target_names, "vispark/translate/kernel.py", "text = '#ifdef __CUDA_ON_HOST__'"),
    (rules.target_names, "gpu_worker/device/include/vispark/rows.h", "#if __CUDA_ARCH__ < 800"),
    (rules.markers, "a.md", "TO" "DO: later"),
    (rules.machine_names, "a.md", "see /ho" "me/someone/file"),
    (rules.machine_names, "a.md", "on build-box-7 it took"),
    (rules.machine_names, "a.md", "from py" "pi.org"),
]

FINE = [
    (rules.forbidden_imports, "vispark/runtime/client.py", "from gpu_worker.protocol.messages import Put"),
    (rules.forbidden_imports, "vispark/runtime/client.py", "from gpu_worker import client\nimport gpu_worker.protocol"),
    (rules.forbidden_imports, "gpu_worker/device/cuda/layer.py", "import pycuda.driver"),
    (rules.forbidden_imports, "tests/unit/test_a.py", "import gpu_worker.device.memory.bindings, pyspark"),
    (rules.inner_imports, "a.py", "import os\ndef f():\n    return os\n"),
    (rules.broad_excepts, "a.py", "try:\n    pass\nexcept (OSError, ValueError):\n    pass\n"),
    (rules.broad_excepts, "gpu_worker/system/watcher.py",
     "def wait():\n    try:\n        pass\n    except Exception:\n        pass\n"),
    (rules.unpickling, "vispark/data/records/parse.py", "pickle.loads(b'')"),
    (rules.unpickling, "vispark/runtime/client.py", "json.loads('1')"),
    (rules.kind_names, "gpu_worker/execution/executor.py", "place == 'host'"),
    (rules.kind_names, "gpu_worker/protocol/transport_kinds.py", "TransportKind('tcp', 'over TCP')"),
    (rules.target_names, "gpu_worker/device/cuda/include/vispark/target.h", "#if __CUDA_ARCH__ < 800"),
    (rules.target_names, "gpu_worker/device/include/vispark/nearest.h", "#if VISPARK_ALONE"),
    (rules.markers, "a.md", "to do it"),
    (rules.machine_names, "a.md", "in /tmp/a, at https://spark.apache.org/docs/ and ../home/x"),
]


def _problems(rule, path: str, text: str) -> list[str]:
    return list(rule(text, path, "build-box-7") if rule is rules.machine_names else rule(text, path))


@pytest.mark.parametrize(("rule", "path", "text"), FOUND)
def test_a_violation_is_found_once(rule, path, text):
    assert len(_problems(rule, path, text)) == 1


@pytest.mark.parametrize(("rule", "path", "text"), FINE)
def test_what_is_allowed_passes(rule, path, text):
    assert _problems(rule, path, text) == []


def test_relative_imports_are_seen_in_full():
    source = "from . import a\nfrom ..protocol import wire\nfrom .b import c"
    assert [name for _, name in rules.imports(source, "gpu_worker/device/null.py")] == [
        "gpu_worker.device.a", "gpu_worker.protocol.wire", "gpu_worker.device.b.c"]
    assert [name for _, name in rules.imports(source, "gpu_worker/device/__init__.py")] == [
        "gpu_worker.device.a", "gpu_worker.protocol.wire", "gpu_worker.device.b.c"]
