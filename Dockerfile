# pybroker in a container: one slim image, a non-root user, data in a volume.  docs/container.md is for its users.
#
#   docker build -t pybroker .
#   docker run -p 9092:9092 -v pybroker:/data pybroker

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
# The last two are where the image of Apache Kafka has data: a volume that is mounted there belongs to the user, too.
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin pybroker \
    && install --directory --owner=pybroker --group=pybroker /data /var/lib/kafka/data /tmp/kraft-combined-logs
# By number: Kubernetes can tell that it is not root.
USER 10001
VOLUME /data
# For the host, and for other containers.
EXPOSE 9092 29092
# Brokers of one cluster send each other datagrams.
EXPOSE 9092/udp 29092/udp
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-m", "pybroker.cli.serve.image_health"]
# The broker is the container's first process: SIGTERM reaches it, and it exits with 0 once its data is on the disk.
ENTRYPOINT ["python", "-m", "pybroker.cli.serve.image_entry"]
