"""Proof that the suite can fail: pybroker with one behaviour broken at a time, and the tests that notice.

``mutant`` says what a mutant is, ``catalogue`` lists them, ``import_hook`` and ``plugin`` put one into a test run,
``run`` (``scripts/mutants``) runs them and judges.  No file of the checkout is ever changed.
"""
