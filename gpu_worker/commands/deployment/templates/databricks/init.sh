#!/usr/bin/env bash
# Init script of a Databricks cluster, which runs on each node as root before Spark starts.
# Environment of the cluster: VISPARK_WHEEL=/Volumes/CATALOG/SCHEMA/VOLUME/vispark-VERSION-py3-none-any.whl
set -euo pipefail

wheel=${VISPARK_WHEEL:?is not set: the wheel of vispark, a path in a volume or in the workspace}
[ -f "$wheel" ] || { echo "init.sh: there is no $wheel on this node" >&2; exit 1; }
# Without dependencies that the runtime has, as its PySpark must stay as it is; with those of the extra cuda.
/databricks/python/bin/python -m pip install --no-cache-dir --no-deps "$wheel"
/databricks/python/bin/python -m pip install --no-cache-dir 'msgpack>=1.0.8' 'click>=8.1' 'rich>=13' 'platformdirs>=4' \
    'cryptography>=42' 'cuda-core[cu13]' 'cuda-bindings[all]==13.*'
/databricks/python/bin/python -m gpu_worker gpus
