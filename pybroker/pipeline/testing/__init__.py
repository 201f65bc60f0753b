"""Tests of jobs without a broker: records in, results out, time by hand.

`driver.JobDriver` is what a test uses; `Record` is what goes in and comes out.  Counterpart: Kafka Streams'
TopologyTestDriver.
"""

from pybroker.pipeline.records import Record
from pybroker.pipeline.testing.driver import JobDriver

__all__ = ["JobDriver", "Record"]
