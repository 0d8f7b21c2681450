"""Compress and compile a trained model until it meets a latency budget, and prove it.

Start reading at `records`, then `pipeline`.
"""

__version__ = "0.1.0"
