"""A process whose GPUs Spark assigned has contexts on them alone, by whatever names Spark gave them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from gpu_worker.device.cuda import device as cuda
from gpu_worker.device.cuda.driver import bindings, check

ROOT = Path(__file__).resolve().parents[2]

#: Opens the devices at each argument, and prints the numbers of the GPUs that the process has a context on: after its
#: start, and after each. Or the error.
_PROGRAM = """\
import json, sys, tempfile
from pathlib import Path
from cuda.bindings import driver
from gpu_worker.protocol.errors import VisparkError
from gpu_worker.protocol.messages import SessionOptions
from gpu_worker.server.handlers import SessionWorker
from gpu_worker.system.crash_record import CrashRecorder

def contexts():
    status, count = driver.cuDeviceGetCount()
    return [] if status else [number for number in range(count)
                              if driver.cuDevicePrimaryCtxGetState(driver.CUdevice(number))[2]]

with tempfile.TemporaryDirectory() as directory:
    options = SessionOptions(sys.argv[1], 0, 30.0, directory, "info", scheduled=True)
    recorder = CrashRecorder(Path(directory, "box"), epoch=1)
    worker, found = SessionWorker(options, epoch=1, recorder=recorder), [contexts()]
    try:
        for address in sys.argv[2:]:
            worker.open([address])
            found.append(contexts())
        found.append(list(worker.devices))
    except VisparkError as error:
        found.append(str(error))
    print(json.dumps(found))
    worker.close()
"""


def _opened(*addresses: str, device: str = "cuda") -> list:
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, device, *addresses], capture_output=True, text=True,
                           cwd=ROOT, env=environment | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _uuid(number: int) -> str:
    identifier = check(getattr(bindings, "cuDeviceGetUuid_v2", bindings.cuDeviceGetUuid)(bindings.CUdevice(number)))
    return f"GPU-{uuid.UUID(bytes=bytes(identifier.bytes))}"


def _listed() -> list[str]:
    """Return the UUIDs of the machine's GPUs in the order of their numbers there, whatever CUDA_VISIBLE_DEVICES is
    here.
    """
    return subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True,
                          check=False).stdout.split()


def _on_machine(number: int) -> int:
    """Return the machine's number of a GPU of this process, which may see some of them alone."""
    return _listed().index(_uuid(number))


def test_nothing_is_open_before_something_is_assigned():
    assert _opened() == [[], []]


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_a_gpu_is_opened_once_by_all_of_its_names(devices: list[cuda.CudaDevice], device: str):
    number = _on_machine(0)
    names = [str(number), _uuid(0), _uuid(0)[:12]]
    assert _opened(*names, device=device) == [[], [number], [number], [number], [f"cuda:{number}"]]


@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("address", ["99", "GPU-00000000-0000-0000-0000-000000000000", "MIG-no"])
def test_an_address_that_is_not_there_is_an_error_and_no_other_device(address: str, device: str):
    *before, words = _opened(address, device=device)
    assert before == [[]]
    assert f"{address!r}" in words or "no usable NVIDIA GPU" in words


def test_the_uuids_are_those_of_nvidia_smi(devices: list[cuda.CudaDevice]):
    assert {_uuid(number) for number in range(len(devices))} <= set(_listed())


def test_other_gpus_have_no_context(devices: list[cuda.CudaDevice]):
    if len(devices) < 2:
        pytest.skip("this machine has one GPU")
    first, second = _on_machine(0), _on_machine(1)
    assert _opened(str(second)) == [[], [second], [f"cuda:{second}"]]
    assert _opened(_uuid(1), str(first)) == [[], [second], sorted([first, second]), [f"cuda:{second}", f"cuda:{first}"]]
