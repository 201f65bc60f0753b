"""What the demo declares: two connectors, a stream and a standing query; and the files of a supervisor of its own.

Owns these texts.  The passwords stand in a file that only this user reads, and declarations refer to it.
"""

from pathlib import Path

FLIGHTS, DELAYS = "flights", "delays_by_hour"
SOURCE, SINK = "flights-from-postgres", "flights-to-lake"
# Of this demo alone, where the broker is another one's.
DECLARATIONS = "lake-demo-declarations"

WORKER = """\
group.id=lake-demo
config.storage.topic=lake-demo-configs
offset.storage.topic=lake-demo-offsets
status.storage.topic=lake-demo-status
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
"""

CONNECTORS = f"""\
name: {SOURCE}
config:
  connector.class: JdbcSource
  connection.url: {{url}}
  connection.user: {{user}}
  connection.password: ${{{{file:{{secret}}:password}}}}
  table: flights
  mode: incrementing
  incrementing.column.name: id
  key.fields: id
  topic: {FLIGHTS}
  poll.interval.ms: 200
---
name: {SINK}
config:
  connector.class: FileSink
  topics: {FLIGHTS}
  value.converter.schema: >-
    id bigint, scheduled timestamp, hour int, origin string, destination string, carrier string, flight int,
    departure_delay int, arrival_delay int
  path: {{lake}}
  format: parquet
  partition.by: day
  partition.field: scheduled
  rotate.interval.ms: 1000
  poll.interval.ms: 200
"""

STREAM = f"""\
CREATE STREAM {FLIGHTS} (id BIGINT, hour INT, origin VARCHAR, departure_delay INT)
  WITH (topic='{FLIGHTS}', format='json')"""

# Asked of PostgreSQL, of the topic and of the lake as it is here; the standing query is made of it.
QUESTION = """\
SELECT origin, hour, count(*) AS flights, count(departure_delay) AS departed, sum(departure_delay) AS delay_minutes
  FROM {flights} GROUP BY origin, hour"""

STANDING = f"CREATE TABLE {DELAYS} AS\n{QUESTION.format(flights=FLIGHTS)}"


def write_files(directory: Path, url: str, user: str, password: str, lake: Path) -> tuple[Path, Path]:
    """Write the worker's file and the connectors' into a directory, and the password beside them; returns both."""
    worker, connectors, secret = (directory / name for name in ("worker.properties", "connectors.yaml", "secret"))
    secret.touch(mode=0o600)
    secret.write_text(f"password={password}\n")
    worker.write_text(WORKER)
    connectors.write_text(CONNECTORS.format(url=url, user=user, secret=secret, lake=lake))
    return worker, connectors
