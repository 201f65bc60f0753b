"""What is written in C on librdkafka: rdkafka_performance, and kcat.

The former is an example among librdkafka's sources, which the crate rdkafka-sys brings by the pins of
``client_suites``; it is built with the library's own optimisation and without TLS.  Debian has kcat.
"""

from __future__ import annotations

import filecmp
import os
import re
import time
from collections.abc import Mapping
from typing import ClassVar

from client_suites.all_suites import SUITES
from client_suites.librdkafka import vendor_sources
from conformance.client_folder import directory_of, run_build_step

from check_it_yourself.built_check import BuiltCheck
from check_it_yourself.check import RECORD_BYTES, Better, Check, CheckFailed, Figure, Subject, found, output_of
from check_it_yourself.tool_paths import environment_with

# What moves no records, and would be there on one machine and not on another.
CONFIGURATION = ("--disable-curl", "--disable-gssapi", "--disable-ssl", "--disable-zstd", "--disable-zlib")
PRODUCED = re.compile(
    r"^% \d+ messages produced \(\d+ bytes\), (?P<delivered>\d+) delivered \(offset -?\d+, (?P<failed>\d+) failed\) "
    r"in \d+ms: (?P<rate>\d+) msgs/s",
    re.MULTILINE,
)
CONSUMED = re.compile(
    r"^% (?P<records>\d+) messages \(\d+ bytes\) consumed in \d+ms: (?P<rate>\d+) msgs/s", re.MULTILINE
)


class RdkafkaPerformance(BuiltCheck):
    """librdkafka's own benchmark: produce with acks=all, then consume the partition from its beginning."""

    name: ClassVar[str] = "rdkafka-performance"
    tool = "rdkafka_performance"
    folder = f"librdkafka-{SUITES['librdkafka-security'].version}"
    program = "librdkafka/examples/rdkafka_performance"

    def _environment(self) -> dict[str, str]:
        return environment_with(directory_of(tool, get=True) for tool in ("cargo", "g++", "make"))

    def _build(self, environment: Mapping[str, str]) -> None:
        sources = self._cache / "librdkafka"
        vendor_sources(SUITES["librdkafka-security"].folder, self._cache, sources, environment)
        run_build_step(["./configure", *CONFIGURATION], sources, environment)
        run_build_step(["make", f"-j{os.cpu_count() or 1}", "-C", "src"], sources, environment)
        run_build_step(["make", "-C", "examples", self._program.name], sources, environment)

    def run(self, subject: Subject) -> list[Figure]:
        records = subject.size.records
        common = [str(self._program), "-b", subject.bootstrap, "-t", subject.new_topic(), "-c", str(records)]
        produced = output_of([*common, "-P", "-s", str(RECORD_BYTES), "-a", "-1"])
        consumed = output_of([*common, "-C", "-p", "0", "-o", "beginning"])
        return [
            Figure("produce 1 kB, acks=all", "records/s", produced_rate(produced, records), Better.HIGHER),
            Figure("consume 1 kB", "records/s", consumed_rate(consumed, records), Better.HIGHER),
        ]


def produced_rate(output: str, records: int) -> float:
    """Records/s of a producer that was to send so many; raises ``CheckFailed`` where not all were delivered."""
    last = found(PRODUCED, output, "rdkafka_performance")
    if int(last["delivered"]) != records or int(last["failed"]):
        raise CheckFailed(f"{last['delivered']} of {records} records were delivered, {last['failed']} failed")
    return float(last["rate"])


def consumed_rate(output: str, records: int) -> float:
    """Records/s of a consumer that was to take so many; raises ``CheckFailed`` where it took fewer."""
    last = found(CONSUMED, output, "rdkafka_performance")
    if int(last["records"]) < records:
        raise CheckFailed(f"{last['records']} of {records} records were consumed")
    return float(last["rate"])


class Kcat(Check):
    """A file of lines goes in and comes out again; the rates include the start of the command."""

    name: ClassVar[str] = "kcat"
    tool = "kcat"

    def prepare(self) -> None:
        directory_of("kcat", get=True)

    def run(self, subject: Subject) -> list[Figure]:
        records, topic = subject.size.records, subject.new_topic()
        lines = subject.directory / f"{topic}.txt"
        with lines.open("w") as file:
            file.writelines(f"{number:0{RECORD_BYTES}d}\n" for number in range(records))
        kcat = [str(directory_of("kcat") / "kcat"), "-b", subject.bootstrap, "-t", topic]
        begun = time.perf_counter()
        output_of([*kcat, "-P", "-p", "0", "-l", str(lines)])
        produced = time.perf_counter()
        received = lines.with_suffix(".back")
        with received.open("wb") as file:
            output_of([*kcat, "-C", "-p", "0", "-o", "beginning", "-e", "-q"], into=file)
        consumed = time.perf_counter()
        if not filecmp.cmp(lines, received, shallow=False):
            raise CheckFailed(f"{lines.stat().st_size} bytes went in, and others came out ({received.stat().st_size})")
        return [
            Figure("produce lines of 1 kB", "records/s", records / (produced - begun), Better.HIGHER),
            Figure("consume them, compared", "records/s", records / (consumed - produced), Better.HIGHER),
        ]
