"""Whether topics can be read and written with other versions of PySpark than the locked one; `scripts/spark-versions`.

Owns one program, which runs in an environment with that version and knows nothing of the tests.
"""
