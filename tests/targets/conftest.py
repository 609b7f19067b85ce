"""Machines under load must not fail a property by its time."""

from hypothesis import settings

settings.register_profile("targets", deadline=None)
settings.load_profile("targets")
