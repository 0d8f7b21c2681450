"""Measurement of latency: clocks, loads, and the statistics that turn samples into statements.

Add a way to send requests in `load`, a statistic in `stats`; `measure` decides how long to go on.
"""
