"""Coordinators: the runtime that drives them, and below it one folder per kind of pure state."""
