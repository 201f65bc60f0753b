"""Tests of the pipeline: event building and results without a JVM, and the whole job with one."""
