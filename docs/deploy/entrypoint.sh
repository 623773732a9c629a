#!/bin/sh
# The entry point of the image. On Kubernetes, Spark starts its executors with the word `executor`, and with their options
# in the environment. Everything else is a command, which tini starts: it passes SIGTERM on, also while Python starts.
set -eu
if [ "${1:-}" != executor ]; then
  exec tini -- "$@"
fi
# Options of Java are in variables SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on. They may contain spaces.
set --
i=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$i+set}\" ]"; do
  eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$i\""
  i=$((i + 1))
done
exec tini -s -- java "$@" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
