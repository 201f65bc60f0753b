"""What Spark finds by itself: it imports installed modules named ``pyspark_*`` and takes their ``DefaultSource``.

So ``spark.read.format("pybroker")`` works in every session, whoever made it, without a call.  It is imported for every
session that uses any data source of Python's, also where nothing else of the extra ``spark`` is installed.
"""

from pybroker.pipeline.topics.data_source import TopicDataSource as DefaultSource

__all__ = ["DefaultSource"]
