"""The client libraries of Python, which run in the process of the tests."""
