#!/bin/sh
# A Kafka node with the properties in the file $1. A new folder is formatted first.
set -eu
options="-XX:+ExitOnOutOfMemoryError -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
options="$options -Dorg.slf4j.simpleLogger.showDateTime=true"
# shellcheck disable=SC2086  # several options
java -Xmx256m $options -cp '/servers/kafka/*' \
    kafka.tools.StorageTool format --ignore-formatted --cluster-id "$KAFKA_CLUSTER_ID" --config "$1"
# shellcheck disable=SC2086
exec java -Xmx512m $options -cp '/servers/kafka/*' kafka.Kafka "$1"
