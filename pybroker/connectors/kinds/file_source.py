"""FileSource: files of a directory as they arrive, each line or row a record.

A file is read once, when it is there whole: it has to be moved into the directory.  Each record is written exactly
once: Spark's checkpoint has the files that were read, and a micro-batch is one transaction per task.
"""

from __future__ import annotations

from typing import Any

from pybroker.connectors.declared.transforms import transforms_of
from pybroker.connectors.kinds.connector_runs import QueryRun, Run, Work
from pybroker.connectors.kinds.record_forms import records_of, transformed, with_own_columns


def start(work: Work) -> Run:
    """Start it; raises what Spark says of the schema, the transforms or the path."""
    rows = with_own_columns(_rows(work), work.value("topic"))
    records = records_of(transformed(rows, transforms_of(work.config)), work.forms, work.value("key.fields"))
    writer = records.writeStream.format("pybroker").queryName(work.name).options(**work.cluster)
    writer = writer.option("checkpointLocation", work.directory).trigger(processingTime=work.interval)
    return QueryRun(writer.start(), work)


def _rows(work: Work) -> Any:
    form: str = work.value("format").lower()
    reader = work.spark.readStream.format(form).option("maxFilesPerTrigger", str(work.value("max.files.per.batch")))
    if form != "text":
        reader = reader.schema(work.value("schema"))
    if form == "csv":
        reader = reader.option("header", str(work.value("header")).lower()).option(
            "sep", work.config.get("delimiter", ",")
        )
    if form in ("csv", "json"):
        # What is no row ends the query, or is passed over.
        reader = reader.option("mode", "DROPMALFORMED" if work.tolerates_errors else "FAILFAST")
    return reader.load(work.value("path"))
