"""Converters: what keys and values of records say, as columns; and what cannot be read, as dead letters.

`decoding` reads records by decoders. `json_values` is for JSON, text and bytes, by Spark's own functions. `avro` and
`protobuf` are by fastavro and protobuf in tasks of Python, so that no jar is needed and errors have the library's own
reason.
"""
