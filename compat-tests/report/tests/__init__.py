"""Tests of the conformance report: what is collected, and the page that is made of it."""
