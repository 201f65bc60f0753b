"""The controller's rules, pure: each function reads an ``ImageBuilder``, changes it, and returns the answers.

A refused request leaves the builder as it was.  No module here knows the store, the loop or the wire.

Counterpart in Kafka: the ``…ControlManager`` classes of ``org.apache.kafka.controller``.
"""
