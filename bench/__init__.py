"""The benchmark: pybroker beside Apache Kafka on one machine, in alternation.  Run by ``scripts/bench``.

While one is measured the other is stopped (SIGSTOP): a JVM that has nothing to do goes on compiling and collecting.

Never a test: nothing here passes or fails.  It prints medians, ratios and the bars, with the machine's load beside
them, and writes ``bench/results/*.json`` and ``bench/RESULTS.md``.

The generators are programs in C (``native/``, compiled by ``compiled.py``, driven by ``loads.py``): a generator that is
slower than a broker measures itself.  A few loads by hand::

    scripts/bench --only tiny --rounds 3                       # both brokers and the floor
    scripts/bench --only tiny --rounds 3 --brokers pybroker    # no JVM
    .venv/bin/python -m bench.loads produce HOST:PORT --connections 8 --in-flight 5    # any running broker, one load

``python -m bench.loads --help`` has the other loads (fetch, commit, latency).  Without a broker, what a request costs
in Python alone: ``python -m bench.request_path``, ``commit_path``, ``produce_path``, ``log_append``, ``codec``.
"""
