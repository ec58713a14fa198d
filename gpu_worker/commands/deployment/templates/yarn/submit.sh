#!/usr/bin/env bash
# Runs a program on YARN with vispark in an archive: VISPARK_ARCHIVE=environment.tar.gz ./submit.sh program.py [arguments]
# The archive: a Python environment that moves (conda-pack, venv-pack) with vispark in it, the same on all nodes.
set -euo pipefail

archive=${VISPARK_ARCHIVE:?is not set: the archive with the Python environment, a file or an hdfs:// address}
gpus=${VISPARK_EXECUTOR_GPUS:-1}
cores=${VISPARK_EXECUTOR_CORES:-4}
case $gpus:$cores in
*[!0-9:]* | :* | *: | 0* | *:0*)
    echo "submit.sh: VISPARK_EXECUTOR_GPUS=$gpus and VISPARK_EXECUTOR_CORES=$cores have to be numbers from 1 on" >&2
    exit 2
    ;;
esac
[ $# -gt 0 ] || { echo "submit.sh: which program? submit.sh program.py [arguments]" >&2; exit 2; }

# Rounded down: with 1 / 6 = 0.166667 Spark would run five tasks at once on six cores. Above 1 it takes whole numbers.
share=$(awk -v g="$gpus" -v c="$cores" 'BEGIN { print g < c ? int(1000000 * g / c) / 1000000 : int(g / c) }')

# Found in the archive, as each node unpacks it.
script=$(dirname "$0")/gpus.sh
[ -f "$script" ] || { echo "submit.sh: $script is missing: cp \"\$(gpu-worker gpus --script)\" \"$script\"" >&2; exit 1; }

# A container that YARN ends may leave the worker, which made a session of its own: --idle is 600 s where it started by
# itself, and a lease keeps data no longer than spark.vispark.lease after the last executor.
exec spark-submit --master yarn --deploy-mode "${VISPARK_DEPLOY_MODE:-cluster}" \
    --archives "$archive#environment" --files "$script#gpus.sh" \
    --conf spark.pyspark.python=./environment/bin/python \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
    --conf "spark.executor.cores=$cores" \
    --conf "spark.executor.resource.gpu.amount=$gpus" \
    --conf spark.executor.resource.gpu.discoveryScript=./gpus.sh \
    --conf "spark.task.resource.gpu.amount=$share" \
    --conf spark.vispark.lease=30 \
    "$@"
