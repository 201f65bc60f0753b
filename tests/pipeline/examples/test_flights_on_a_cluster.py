"""The main job against three brokers, one of which is killed under it. Starts a JVM, Spark's.

Needs what `scripts/spark-setup` installs; without it this test fails, and does not skip.
"""

from pathlib import Path

import pytest
from harness.pybroker_cluster import PybrokerCluster

from examples.flights import dataset
from examples.flights.check import aggregate, differences
from examples.flights.delays import total
from examples.flights.demo import DemoOptions, create_topics, job_options
from examples.flights.events import flight_events, produce
from examples.flights.processes import JobProcess
from examples.flights.results import end_offsets, read_results

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(300)]

PROPERTIES = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def test_job_goes_on_without_loss_when_a_broker_is_killed_under_it(tmp_path: Path) -> None:
    rows = list(dataset.rows(months=1))
    options = DemoOptions(months=1, micro_batches=6)
    expected = aggregate(rows)
    with PybrokerCluster(tmp_path / "cluster", PROPERTIES) as cluster:
        bootstrap = ",".join(cluster.bootstraps)
        create_topics(bootstrap, options)
        job = job_options(bootstrap, options, len(rows), tmp_path)
        produce(bootstrap, options.flights_topic, flight_events(rows), lambda count: None)
        told = []
        with JobProcess(job, tmp_path) as running:
            for line in running.lines():
                told.append(line)
                if len(told) == 2:
                    # Four partitions over three brokers: each leads one of them at least.
                    cluster.kill(0)
        cluster.wait_until_known_dead()
        bootstrap = ",".join(cluster.bootstraps[1:])
        ends = end_offsets(bootstrap, options.delays_topic)
        latest = read_results(bootstrap, ends, "readers", options.consumers, lambda count: None)
    assert len(told) > 3  # it went on after the kill
    assert list(differences(latest.results(), expected)) == []
    assert told[-1]["parquet"] == {"rows": len(expected), "cells": len(expected), **total(expected.values())._asdict()}
