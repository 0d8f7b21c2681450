"""The MLflow registry: `locate` and `check` a place before a run, `record` the run there afterwards.

The only door to mlflow, which `connection` and `recording` import. Add to the module whose sentence fits.
"""

from compressor.registry.place import Registry, check, locate, model_name, public
from compressor.registry.recording import record

__all__ = ["Registry", "check", "locate", "model_name", "public", "record"]
