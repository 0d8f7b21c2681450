"""Measurement of latency: clocks, loads, rounds, and the statistics that turn samples into statements.

Add a way to send requests in `load`, a statistic of calls in `stats`, one of rounds in `ratio`; `looks` says when to
look, `rounds` how calls are spread, `measure` when it is enough, `summary` what was found.
"""
