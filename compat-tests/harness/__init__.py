"""What everything that runs brokers from outside shares: the tests here and in ``tests``, the report, the benchmark.

Owns: starting and ending Apache Kafka and pybroker as processes, telling that a broker serves, commands that end with
what they started, and where parts of the report leave their results.  Imports nothing of its users.
"""
