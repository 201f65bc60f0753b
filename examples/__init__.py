"""Demos of a source tree, which the wheel leaves out: nothing of ``pybroker`` imports them.

flights  delays of a year of flights (`scripts/demo`)   tour     joins, state, a database and a picture (`--tour`)
uses     four classic uses, a file each                 tenants  two tenants on one broker (`--tenants`)
feed     fills topics with recorded data for the first three
"""
