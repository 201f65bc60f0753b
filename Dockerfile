# pybroker in a container: one slim image, a non-root user, data in a volume.
#
#   docker build -t pybroker .
#   docker run -p 9092:9092 -v pybroker:/data pybroker --set advertised.listeners=PLAINTEXT://localhost:9092

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY pybroker pybroker
COPY pyspark_pybroker pyspark_pybroker
# With the client commands, for `docker exec`, and the client of ZooKeeper, for a cluster of several machines.
# A virtual environment is copied whole into the final image, and pip's cache and the sources stay behind.
RUN python -m venv /opt/pybroker && /opt/pybroker/bin/pip install --no-cache-dir ".[cli,zookeeper]"

FROM python:3.12-slim
ENV PATH=/opt/pybroker/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=build /opt/pybroker /opt/pybroker
COPY scripts/healthcheck.py /opt/pybroker/healthcheck.py
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin pybroker \
    && install --directory --owner=pybroker --group=pybroker /data
# By number: Kubernetes can tell that it is not root.
USER 10001
VOLUME /data
EXPOSE 9092
# Brokers of one cluster send each other datagrams.
EXPOSE 9092/udp
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "/opt/pybroker/healthcheck.py", "127.0.0.1", "9092"]
# A wildcard is never advertised: without advertised.listeners, clients are told the container's own name.
ENTRYPOINT ["pybroker", "serve", "--listen", "0.0.0.0:9092", "--data-dir", "/data"]
