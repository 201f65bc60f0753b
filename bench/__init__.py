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

Figures of a virtual machine.  Those of bulk transfers mean little without a look at its memory: a host may take back
what the guest has free, and each page comes again at the cost of a fault in the host, told as the guest's system time
(``taken_memory``).  So a file of a measurement's size is written and removed before each
(``context.back_with_memory``); the part ``absent`` does the opposite.  The share of the processors' time that the host
took is told for each part.  Small figures swing by half within seconds, the processor time of a request too: compare by
many short alternations, or by the best of many rounds without sockets (``produce_path``, ``commit_path``).  Where the
system's congestion control is BBR, it paces loopback as well.

Each reply is read to its error codes, the log is compared with what was acknowledged, and latencies at a fixed rate
count from when a request was due.  No page measures old commits again: a change's gain depends on the generator of its
day.
"""
