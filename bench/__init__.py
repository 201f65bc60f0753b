"""The benchmark: pybroker beside Apache Kafka on one machine, in alternation.  Run by ``scripts/bench``.

Never a test: nothing here passes or fails.  It prints medians, ratios and the bars, with the machine's load beside
them, and writes ``bench/results/*.json`` and ``bench/RESULTS.md``.
"""
