"""The comparator: the same requests to Apache Kafka and to pybroker, the decoded replies compared field by field.

A *scenario* is a function that talks to one broker; it is run against each of the two, and what they answered is
recorded.  ``normalize`` replaces what cannot be equal by symbols, ``diff`` compares the two records, and
``differences`` lists the differences that are meant, each with its reason.
"""
