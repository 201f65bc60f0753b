"""Tests of the test driver."""
