"""``launchkit bench service``: real servers of configs under fleets, faults, load and time."""
