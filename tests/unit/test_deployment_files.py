"""Units, manifests, scripts and templates pass the validators of their kinds, which find a fault planted in each."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest
import yaml

from gpu_worker import cli
from gpu_worker.commands.deployment import templates
from gpu_worker.protocol.errors import OptionError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(Path(sys.executable).with_name("gpu-worker"))

#: What stands in a file, and what a slip of the hand makes of it.
FAULTS = {
    "databricks/init.sh": ('[ -f "$wheel" ]', "[ -f $wheel ]"),
    "dataproc/init.sh": ("esac\n", "\n"),
    "docker/Dockerfile": ("apt-get install --yes", "apt-get install"),
    "docker/entrypoint.sh": ('exec "$@"', "exec $@"),
    "emr/bootstrap.sh": ('"$folder/"', "$folder/"),
    "emr/cluster.json": ('"KeepJobFlowAliveWhenNoSteps"', '"KeepJobFlowAliveWhenNoStep"'),
    "kubernetes/executor-beside-worker.yaml": ("hostNetwork: true", "hostNetworks: true"),
    "kubernetes/executor.yaml": ("volumeMounts:", "volumeMount:"),
    "kubernetes/worker-daemonset.yaml": ("matchLabels:", "matchLabel:"),
    "standalone/spark-env.sh": ("export SPARK_WORKER_OPTS", 'export "$SPARK_WORKER_OPTS'),
    "systemd/gpu-worker@.service": ("KillMode=process", "KillModes=process"),
    "systemd/gpu-worker@.socket": ("SocketMode=0600", "SocketMode=0900"),
    "systemd/user/gpu-worker.service": ("Type=notify", "Type=notified"),
    "systemd/user/gpu-worker.socket": ("ListenStream=", "ListenStreams="),
    "yarn/submit.sh": ('"$@"', "$@"),
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write all files as ``gpu-worker clusters templates`` does."""
    templates.write("", tmp_path, templates.values(PROGRAM, "vispark:0.11"))
    return tmp_path


def _tool(name: str, *arguments: str, **variables: str) -> str:
    """Return the objections of a validator to a file; nothing where it passes."""
    program = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"{name} is not installed")
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, env=os.environ | variables, timeout=60,
                         check=False)
    return "" if ran.returncode == 0 else f"{ran.stdout}{ran.stderr}" or f"status {ran.returncode}"


def _shell(path: Path) -> str:
    return _tool("shellcheck", str(path))


def _dockerfile(path: Path) -> str:
    return _tool("hadolint", "--no-color", str(path))


def _template(path: Path) -> str:
    return _tool("cfn-lint", str(path))


def _unit(path: Path) -> str:
    scope = ["--user"] if path.parent.name == "user" else []
    # Of a template with its socket, each by itself; without --recursive-errors an unknown key is a warning alone. The
    # sockets of the machine's other units are below this folder, with paths that may have 107 bytes.
    with tempfile.TemporaryDirectory() as short:
        return _tool("systemd-analyze", "verify", *scope, "--man=no", "--recursive-errors=yes", str(path),
                     XDG_RUNTIME_DIR=short)


def _manifest(path: Path) -> str:
    validate = pytest.importorskip("kubernetes_validate")
    try:
        for document in yaml.safe_load_all(path.read_text()):
            validate.validate(document, "1.30", strict=True)
    except (validate.ValidationError, yaml.YAMLError) as error:
        return str(error)
    return ""


_VALIDATORS: dict[str, Callable[[Path], str]] = {
    ".sh": _shell, "Dockerfile": _dockerfile, ".json": _template, ".yaml": _manifest, ".service": _unit,
    ".socket": _unit}


def test_each_file_has_a_validator_and_a_fault(written: Path):
    files = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert files == FAULTS.keys()
    assert all((Path(name).suffix or Path(name).name) in _VALIDATORS for name in files)


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_passes_and_a_fault_in_it_does_not(written: Path, name: str):
    path = written / name
    validate = _VALIDATORS[path.suffix or path.name]
    assert not validate(path)
    right, wrong = FAULTS[name]
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong, 1))
    assert validate(path), f"{wrong} was not found"


def test_the_service_shows_little_to_whoever_takes_it_over(written: Path):
    assert not _tool("systemd-analyze", "security", "--offline=yes", "--threshold=55", "--no-pager",
                     str(written / "systemd/gpu-worker@.service"))


def test_sockets_of_units_are_those_that_clients_look_for(written: Path):
    for name, directory in (("gpu-worker@", "/run/vispark/%i"), ("user/gpu-worker", "%t/vispark")):
        assert f"ListenStream={directory}/daemon.sock\n" in (written / f"systemd/{name}.socket").read_text()
        started = f"ExecStart={PROGRAM} start --foreground --runtime-dir {directory}\n"
        assert started in (written / f"systemd/{name}.service").read_text()


def test_scripts_that_leave_dependencies_out_name_all_but_those_of_the_platform(written: Path):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    packages = setup["options"]["install_requires"] + setup["options.extras_require"]["cuda"]
    needed = [line.replace(" ", "") for line in packages.splitlines()
              if line and not line.startswith(("pyspark", "numpy"))]
    for platform in ("databricks", "dataproc"):
        installed = (written / platform / "init.sh").read_text().partition("--no-deps")[2]
        assert re.findall(r"'([a-z][^' ]+)'", installed) == needed


def test_what_installs_for_gpus_has_what_they_need(written: Path):
    assert "ARG EXTRAS=cuda," in (written / "docker/Dockerfile").read_text()
    assert "extras=${2:-cuda," in (written / "emr/bootstrap.sh").read_text()
    parameters = json.loads((written / "emr/cluster.json").read_text())["Parameters"]
    assert parameters["Extras"]["Default"].startswith("cuda,")


@pytest.mark.parametrize("platform", ["emr", "dataproc", "databricks"])
def test_scripts_say_what_they_were_not_given(written: Path, platform: str, tmp_path: Path):
    script = next((written / platform).glob("*.sh"))
    text = script.read_text().replace("/usr/share/google/get_metadata_value", "/bin/true")
    ran = subprocess.run(["bash", "-c", text, script.name], capture_output=True, text=True, cwd=tmp_path, timeout=30,
                         check=False)
    assert ran.returncode in (1, 2) and "wheel" in ran.stderr and "vispark" in ran.stderr + text


def _submitted(written: Path, gpus: str, cores: str) -> subprocess.CompletedProcess[str]:
    """Run YARN's script with a ``spark-submit`` that prints its arguments."""
    stub = written / "spark-submit"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    (written / "yarn" / "gpus.sh").touch()
    return subprocess.run(["bash", str(written / "yarn/submit.sh"), "a program.py", "7"], capture_output=True,
                          text=True, timeout=30, check=False, env=os.environ | {
                              "PATH": f"{written}:{os.environ['PATH']}", "VISPARK_ARCHIVE": "environment.tar.gz",
                              "VISPARK_EXECUTOR_GPUS": gpus, "VISPARK_EXECUTOR_CORES": cores})


@pytest.mark.parametrize("cores", [1, 3, 6, 7, 15, 24, 48])
def test_yarn_runs_as_many_tasks_as_cores(written: Path, cores: int):
    ran = _submitted(written, "1", str(cores))
    share = float(next(line for line in ran.stdout.splitlines() if "task.resource" in line).partition("=")[2])
    assert int(1 / share) == cores and ran.stdout.splitlines()[-2:] == ["a program.py", "7"]


@pytest.mark.parametrize(("gpus", "share"), [("4", "1"), ("10", "2"), ("2", "0.5")])
def test_tasks_on_yarn_have_whole_gpus_where_there_are_more_than_cores(written: Path, gpus: str, share: str):
    assert f"spark.task.resource.gpu.amount={share}\n" in _submitted(written, gpus, "4").stdout


@pytest.mark.parametrize(("gpus", "cores"), [("1", "0"), ("two", "4"), ("1", "4.5"), ("-1", "4")])
def test_yarns_script_refuses_what_is_no_number(written: Path, gpus: str, cores: str):
    ran = _submitted(written, gpus, cores)
    assert ran.returncode == 2 and f"VISPARK_EXECUTOR_CORES={cores} have to be" in ran.stderr and ran.stdout == ""


def test_a_node_of_dataproc_without_python_says_so(written: Path, tmp_path: Path):
    for name in ("mktemp", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    (tmp_path / "gsutil").symlink_to("/bin/true")
    metadata = tmp_path / "metadata"
    metadata.write_text("#!/bin/sh\necho gs://bucket/vispark-1-py3-none-any.whl\n")
    metadata.chmod(0o755)
    text = (written / "dataproc/init.sh").read_text().replace("/usr/share/google/get_metadata_value", str(metadata))
    ran = subprocess.run(["/bin/bash", "-c", text.replace("/opt/conda", "/nowhere")], capture_output=True, text=True,
                         env={"PATH": str(tmp_path)}, timeout=30, check=False)
    assert ran.returncode == 1 and "there is no Python on this node" in ran.stderr


@pytest.mark.parametrize(("extras", "expected"), [("", ""), ("text,files", "pyarrow>=16 fsspec>=2024.2"),
                                                  ("cuda,txet", "vispark-extras names txet; there are ['cuda',")])
def test_extras_on_dataproc_bring_no_pyspark(written: Path, tmp_path: Path, extras: str, expected: str):
    # It would stand beside Spark's own.
    stubs = {"gsutil": "exit 0",
             "metadata": f'case $1 in *wheel) echo gs://b/vispark-1.whl;; *) echo "{extras}";; esac',
             "python": f'[ "$1" != -m ] && exec {sys.executable} "$@"; echo "$*" >>{tmp_path}/ran'}
    for name, text in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    text = (written / "dataproc/init.sh").read_text().replace("/usr/share/google/get_metadata_value",
                                                             f"{tmp_path}/metadata")
    ran = subprocess.run(["/bin/bash", "-c", text.replace("/opt/conda/default/bin", str(tmp_path))], check=False,
                         capture_output=True, text=True, timeout=60,
                         env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    calls = (tmp_path / "ran").read_text().splitlines()
    assert "pyspark" not in " ".join(calls) and "--no-deps" in calls[0]
    if ran.returncode:
        assert expected in ran.stderr and len(calls) == 2
    else:
        assert calls[2:] == [f"-m pip install --no-cache-dir {expected}"] * bool(expected) + ["-m gpu_worker gpus"]


def test_the_script_of_a_worker_counts_its_gpus(written: Path):
    for gpus, amount in (("0,1,2", 3), ("MIG-1234-5678", 1), ("", 0)):
        ran = subprocess.run(["bash", "-c", f'. "{written}/standalone/spark-env.sh"; echo "$SPARK_WORKER_OPTS"'],
                             env=os.environ | {"CUDA_VISIBLE_DEVICES": gpus}, capture_output=True, text=True,
                             timeout=60, check=True)
        assert f"-Dspark.worker.resource.gpu.amount={amount} " in ran.stdout
        assert re.search(r"discoveryScript=/\S+/gpus\.sh$", ran.stdout.strip())


def test_the_image_runs_executors_as_spark_asks(written: Path, tmp_path: Path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    variables = {
        "JAVA_HOME": str(tmp_path), "SPARK_HOME": "/spark", "SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=e",
        "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_DRIVER_URL": "spark://d", "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod"}
    script = written / "docker/entrypoint.sh"
    words = subprocess.run([script, "executor"], env=os.environ | variables, capture_output=True, text=True, timeout=30,
                           check=True).stdout.splitlines()
    assert words[:4] == ["-Da=b c", "-Dd=e", "-Xms1g", "-Xmx1g"]
    assert words[6] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    options = dict(zip(words[7::2], words[8::2], strict=True))
    assert options == {"--driver-url": "spark://d", "--executor-id": "3", "--cores": "2", "--app-id": "app",
                       "--hostname": "10.0.0.1", "--resourceProfileId": "0", "--podName": "pod"}
    assert subprocess.run([script, "echo", "a b"], env=os.environ | variables, capture_output=True, text=True,
                          check=True).stdout == "a b\n"


def test_files_of_the_readers_own_are_kept(tmp_path: Path):
    runner = click.testing.CliRunner()
    arguments = ["clusters", "templates", "emr", "--out", str(tmp_path)]
    assert runner.invoke(cli.main, arguments).exit_code == 0
    own_file = tmp_path / "cluster.json"
    own_file.write_text(json.dumps({"mine": 1}))
    result = runner.invoke(cli.main, arguments)
    assert result.exit_code == 1 and str(own_file) in result.output and "--replace" in result.output
    assert json.loads(own_file.read_text()) == {"mine": 1}
    assert runner.invoke(cli.main, [*arguments, "--replace"]).exit_code == 0
    assert "AWS::EMR::Cluster" in own_file.read_text()


def test_bad_names_are_refused_with_good_ones(tmp_path: Path):
    with pytest.raises(OptionError, match="there is no platform 'k8s'; there are databricks"):
        templates.write("k8s", tmp_path, templates.values(PROGRAM))
    with pytest.raises(OptionError, match="absolute path without blanks"):
        templates.values("bin/gpu-worker")
    with pytest.raises(OptionError, match=r"registry\.example\.com"):
        templates.values(PROGRAM, "an image")
    result = click.testing.CliRunner().invoke(cli.main, ["clusters", "templates"])
    assert result.output.split() == templates.platforms()
