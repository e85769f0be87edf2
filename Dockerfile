# The images of docker-compose.yaml, one stage per role. "docker compose build" makes them all; no stage needs a feature
# of BuildKit. Downloads and caches stay in the stages "build" and "build-airflow", which are in no image.
#
# BASE is Debian 12 or anything with its packages. To pin it, name its digest:
#   docker compose build --build-arg BASE=debian:bookworm-slim@sha256:...
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS java
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

FROM java AS python
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /tidemark
# spark-submit and PySpark start Spark from here, with this Python.
ENV PATH=/tidemark/.venv/bin:$PATH \
    SPARK_HOME=/tidemark/.venv/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=/tidemark/.venv/bin/python

# The locked packages and jars, checked by their hashes.
FROM python AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv
COPY requirements.in requirements.txt pyproject.toml ./
COPY scripts/setup_python.py scripts/setup_packages.py scripts/
# Of the project's own code only the version: the rest comes later, so that a change of it does not repeat the downloads.
COPY include/tidemark/__init__.py include/tidemark/
COPY include/tidemark_verify.py include/
RUN touch README.md \
    && python3 scripts/setup_python.py spark \
    && python3 -m compileall -q .venv \
    && rm -rf /root/.cache
COPY jars jars
COPY scripts/setup_jars.py scripts/
COPY include/tidemark/core/__init__.py include/tidemark/core/errors.py include/tidemark/core/text.py include/tidemark/core/
COPY include/tidemark/spark/__init__.py include/tidemark/spark/jars.py include/tidemark/spark/java_command.py \
    include/tidemark/spark/
RUN .venv/bin/python scripts/setup_jars.py && rm -rf /root/.ivy2

FROM build AS build-airflow
RUN python3 scripts/setup_python.py airflow && python3 -m compileall -q .venv && rm -rf /root/.cache

# Kafka and the S3 server, for machines that have none.
FROM java AS servers
WORKDIR /servers
COPY --from=build /tidemark/.tidemark/jars/kafka kafka
COPY --from=build /tidemark/.tidemark/jars/s3 s3
COPY compose/kafka.sh compose/s3.sh ./
ARG UID=1000
RUN useradd --uid ${UID} --create-home tidemark && install -d -o tidemark /data
USER tidemark

FROM ${BASE} AS postgres
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql
WORKDIR /servers
COPY compose/postgres.sh compose/pg_hba.conf ./
ARG UID=1000
RUN useradd --uid ${UID} --create-home tidemark && install -d -o tidemark /data /var/run/postgresql
USER tidemark

# Spark's master and workers, the streams, and the commands.
FROM python AS spark
COPY --from=build /tidemark/.venv .venv
COPY --from=build /tidemark/.tidemark/jars/spark .tidemark/jars/spark
COPY scripts/compose_check.py scripts/
COPY compose/spark.sh compose/
COPY include include
COPY spark_apps spark_apps
ARG UID=1000
RUN useradd --uid ${UID} --create-home tidemark && install -d -o tidemark /work
ENTRYPOINT ["/tidemark/compose/spark.sh"]
USER tidemark

# Airflow's services. Its tasks are Spark's drivers.
FROM python AS airflow
COPY --from=build-airflow /tidemark/.venv .venv
COPY --from=build /tidemark/.tidemark/jars/spark .tidemark/jars/spark
COPY scripts/compose_check.py scripts/
COPY compose/spark.sh compose/
COPY include include
COPY spark_apps spark_apps
COPY dags dags
COPY plugins plugins
ARG UID=1000
RUN useradd --uid ${UID} --create-home tidemark && install -d -o tidemark /airflow
ENTRYPOINT ["/tidemark/compose/spark.sh"]
USER tidemark
