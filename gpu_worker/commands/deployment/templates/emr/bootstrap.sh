#!/usr/bin/env bash
# Bootstrap action of EMR: installs vispark on a node. Spark is not there yet, and the worker starts with the first task.
#   bootstrap.sh WHEEL [EXTRAS]     WHEEL: s3://bucket/vispark-VERSION-py3-none-any.whl
set -euo pipefail

wheel=${1:?bootstrap.sh: which wheel? s3://bucket/vispark-VERSION-py3-none-any.whl}
extras=${2:-cuda,dataframe}
case $wheel in
s3://*.whl) ;;
*)
    echo "bootstrap.sh: $wheel is not the address of a wheel in S3" >&2
    exit 2
    ;;
esac

for python in python3.13 python3.12 python3.11; do
    "$python" -c "import venv" 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    sudo dnf install --assumeyes python3.11 python3.11-pip gcc-c++
    python=python3.11
fi
command -v g++ >/dev/null || sudo dnf install --assumeyes gcc-c++

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
aws s3 cp "$wheel" "$folder/"
sudo "$python" -m venv /opt/vispark
# spark-submit puts EMR's own PySpark before the one that pip brings.
sudo /opt/vispark/bin/python -m pip install --no-cache-dir "$folder/$(basename "$wheel")[$extras]"
# At a path that does not depend on the version of Python, for Spark's settings.
sudo cp "$(/opt/vispark/bin/gpu-worker gpus --script)" /opt/vispark/gpus.sh
/opt/vispark/gpus.sh
