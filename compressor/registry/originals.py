"""The original model that versions are made of, kept once for all runs of it, so that each can be proved beside it.

Where else an original may lie is a branch in `fetch_original`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from compressor.errors import CompressorError, MachineError
from compressor.records import Report, VersionName
from compressor.registry.connection import connected
from compressor.registry.place import public
from compressor.registry.versions import Run

_FOLDER = "original"
_KEEPS, _KEPT_BY = "compressor.keeps_original", "compressor.original_run"


def keep(run: Run) -> None:
    """Log the original with this run, unless an earlier one that is finished holds it; a tag says which does."""
    sha256, files = run.report.model.sha256, _files(run.report)
    if not files:  # the baseline was not built
        return
    held = f"tags.`{_KEEPS}` = '{sha256}' and attributes.status = 'FINISHED'"
    found = run.client.search_runs([run.experiment_id], held, max_results=1)
    if found:
        run.client.set_tag(run.run_id, _KEPT_BY, found[0].info.run_id)
        return
    root = (run.folder / files[0]).parent
    for file in files:
        path = run.folder / file
        beside = path.parent.relative_to(root).as_posix()
        run.client.log_artifact(run.run_id, str(path), f"{_FOLDER}/{beside}" if beside != "." else _FOLDER)
    run.client.set_tag(run.run_id, _KEPT_BY, run.run_id)
    run.client.set_tag(run.run_id, _KEEPS, sha256)


def fetch_original(uri: str, version: VersionName, folder: Path) -> Path | None:
    """Give the folder with the original of a registered version by its number; None where nobody kept it.

    Meant for a child process: it imports mlflow and sets its URI.

    Raises:
        MachineError: The registry does not answer, or the files are gone.
    """
    with connected(uri, partial(_refused, uri, version)) as client:
        from mlflow.artifacts import download_artifacts

        run = client.get_run(client.get_model_version(version.model, version.wanted).run_id)
        if (keeper := run.data.tags.get(_KEPT_BY)) is None:
            return None
        return Path(download_artifacts(run_id=keeper, artifact_path=_FOLDER, dst_path=str(folder)))


def _files(report: Report) -> list[str]:
    return [file.path for artifact in report.baseline.artifacts[:1] for file in artifact.files]


def _refused(uri: str, version: VersionName, reason: str) -> CompressorError:
    return MachineError(f"{version}: the registry {public(uri, uri)} does not give its original: {reason}")
