"""Queries that run on: their translation for Spark, the plan that a supervisor keeps, and its run there."""
