#!/bin/sh
# The S3 server with the properties in the file $1. Its default log level, DEBUG, writes gigabytes.
set -eu
mkdir -p /data/buckets
cat > /tmp/logback.xml <<'END'
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
END
exec java -Xmx768m -XX:+ExitOnOutOfMemoryError -Dlogback.configurationFile=/tmp/logback.xml \
    -cp '/servers/s3/*' org.gaul.s3proxy.Main --properties "$1"
