"""The wire itself: each trap that a broker can fall into, as one test over a plain socket.

The clients of the scenarios beside forgive much; these tests forgive nothing, and say exactly what Apache Kafka
does.  ``asking`` builds the requests; the tests are sorted by what they are about.
"""
