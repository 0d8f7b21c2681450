"""The MLflow registry: `locate` and `check` a place before a run, `record` the run there afterwards, `fetch` a model.

`aliases` says which version is served, `history` shows all, `originals` keeps what they are made of. The only door to
mlflow, which most modules here import. Add to the module whose sentence fits.
"""

from compressor.registry.aliases import CANDIDATE, Promoted, promote
from compressor.registry.entry import identity
from compressor.registry.fetching import fetch, find
from compressor.registry.history import Past, history
from compressor.registry.originals import fetch_original
from compressor.registry.place import Registry, check, database, locate, model_name, public
from compressor.registry.recording import record
from compressor.registry.serving import REPORTS, graph_file, placed

__all__ = [
    "CANDIDATE",
    "REPORTS",
    "Past",
    "Promoted",
    "Registry",
    "check",
    "database",
    "fetch",
    "fetch_original",
    "find",
    "graph_file",
    "history",
    "identity",
    "locate",
    "model_name",
    "placed",
    "promote",
    "public",
    "record",
]
