"""The MLflow registry: `locate` and `check` a place before a run, `record` the run there afterwards, `fetch` a model.

The only door to mlflow, which `connection`, `recording` and `fetching` import. Add to the module whose sentence fits.
"""

from compressor.registry.fetching import fetch
from compressor.registry.place import Registry, check, locate, model_name, public
from compressor.registry.recording import record

__all__ = ["Registry", "check", "fetch", "locate", "model_name", "public", "record"]
