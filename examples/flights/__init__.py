"""The flights demo: the departures of 2013 from New York's three airports, as a stream.

dataset  the source file, as rows            events   rows as keyed Kafka records, and producing them
delays   the vocabulary of the results       job      the Structured Streaming job, a process of its own
results  a consumer group reads the results  check    the same aggregation in batch, cell by cell
table    the results for people              demo     everything in order (`python -m examples.flights`)
"""
