# One image for every Tidemark process of docker-compose.yaml: the locked packages and jars, as "make install" makes them.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates make openjdk-17-jre-headless procps python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /tidemark
COPY . .
RUN make install && useradd --create-home tidemark && mkdir /airflow && chown tidemark /airflow
USER tidemark
ENV PATH=/tidemark/.venv/bin:$PATH
