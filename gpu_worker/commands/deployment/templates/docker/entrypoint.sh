#!/usr/bin/env bash
# Runs what Spark on Kubernetes asks of its image: driver, executor, or any other command, as gpu-worker.
set -euo pipefail

SPARK_HOME=${SPARK_HOME:-$(python -c 'import pyspark; print(pyspark.__path__[0])')}
export SPARK_HOME PYSPARK_PYTHON="${PYSPARK_PYTHON:-python}" PYSPARK_DRIVER_PYTHON="${PYSPARK_DRIVER_PYTHON:-python}"

case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # Spark numbers the options of the executor's JVM: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
    options=()
    for ((number = 0; ; number++)); do
        name="SPARK_JAVA_OPT_$number"
        [ -n "${!name+set}" ] || break
        options+=("${!name}")
    done
    # The classes that --jars brings lie in the working directory.
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_EXTRA_CLASSPATH:+$SPARK_EXTRA_CLASSPATH:}$SPARK_HOME/jars/*:$PWD:$PWD/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
