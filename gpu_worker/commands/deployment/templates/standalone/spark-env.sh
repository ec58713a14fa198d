#!/usr/bin/env bash
# For conf/spark-env.sh of each worker of a standalone cluster: the GPUs of the machine, as many as the script finds.
program=@PROGRAM@
script=$("$program" gpus --script)
# The line is {"name": "gpu", "addresses": ["0", "1"]}: a pair of quotation marks an address after the first three.
gpus=$("$program" gpus | tr -cd '"' | awk '{ print length($0) / 2 - 3 }')
SPARK_WORKER_OPTS="${SPARK_WORKER_OPTS:-} -Dspark.worker.resource.gpu.amount=$gpus"
SPARK_WORKER_OPTS="$SPARK_WORKER_OPTS -Dspark.worker.resource.gpu.discoveryScript=$script"
export SPARK_WORKER_OPTS
