"""The log of a command: kept in memory, and written to the file that is named for it or, on a bug, to one of its own.

Lines come from where something happens, through the logger `compressor`; a line on the command itself is added here.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

from compressor import __version__
from compressor.errors import InputError, MachineError, printable

_LOGGER = logging.getLogger("compressor")
_KEPT = 1000
"""Lines in memory, for a bug before which nobody named a file."""
_LINE = "{asctime}.{msecs:03.0f}Z {levelname} {process} {message}"
_TIME = "%Y-%m-%dT%H:%M:%S"
_BEGINS = re.compile(rb"\d{4}-\d\d-\d\dT")
"""How a line begins, and so a log."""
_URI = re.compile(r"[A-Za-z][\w+.-]*://.*", re.DOTALL)
_PRIVATE = 0o600
"""Who may read a file that nobody asked for."""
_REGISTRIES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")


def begin() -> None:
    """Keep the lines of a command from now on, first those that say what runs where."""
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.addHandler(_Log())
    on, version = platform.uname(), platform.python_version()
    _LOGGER.info("start: compressor %s, python %s, %s %s %s", __version__, version, on.system, on.release, on.machine)
    with suppress(OSError):  # the folder may be gone
        _LOGGER.info("start: in %s", os.getcwd())  # noqa: PTH109 - Path.cwd asks the same
    _LOGGER.info("start: %s", _Command())


def to(path: Path | None) -> None:
    """Append the command's lines to a file, if one is named.

    Raises:
        InputError: It holds something else.
        MachineError: It cannot be written.
    """
    if path is None:
        return
    try:
        _check_log(path)
        (log,) = _logs()
        log.open(path)
    except OSError as error:
        raise MachineError(
            f"--log-file: {path} cannot be written ({error.strerror}); name another file, in a folder that is there"
        ) from error


def _check_log(path: Path) -> None:
    """Make sure that a file that is there is a log: nobody means to append to a model."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            begins = file.read(len("2026-11-30T"))
        if not _BEGINS.match(begins):
            raise InputError(f"--log-file: {path} is there and is no log; name a new file, or a log to append to")


def hide(uri: str | None) -> None:
    """Let no line show what logs in to a registry."""
    for log in _logs():  # none where no command line was read
        log.registries.append(uri or "")


def hidden(text: str) -> str:
    """Leave out of a text what logs in to the registries that the command knows."""
    from compressor.registry import public

    for uri in (uri for log in _logs() for uri in log.registries if "@" in uri or "?" in uri):
        text = public(text, uri)
    return public(text)


def error(told: str) -> None:
    """Add what the command is refused for."""
    for line in told.splitlines():
        _LOGGER.error("refused: %s", line)


def bug(told: str) -> Path | None:
    """Add a traceback, and give the file that holds it and the lines before it; None where none can be written.

    Where no file is open, it is a new one in the working folder, or else in the one for temporary files.
    """
    import secrets
    import tempfile

    (log,) = _logs()
    for line in told.splitlines():
        _LOGGER.error("bug: %s", line)
    name = f"compressor-bug-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}.log"
    for folder in (os.getcwd, tempfile.gettempdir):
        if log.file is None:
            with suppress(OSError):
                log.open(Path(folder(), name), os.O_EXCL, _PRIVATE)
    return None if log.file is None else log.path


def end(code: object) -> None:
    """Write the last line, and keep no more."""
    (log,) = _logs()
    _LOGGER.info("end: exit code %s", code or 0)
    log.shut()
    _LOGGER.removeHandler(log)


def _logs() -> list[_Log]:
    """Give the log of the command, if one has begun."""
    return [handler for handler in _LOGGER.handlers if isinstance(handler, _Log)]


class _Command:
    """What was typed; written out late, since what leaves secrets out takes a quarter of a second to import."""

    def __init__(self) -> None:
        self._words = sys.argv[1:]

    def __str__(self) -> str:
        return shlex.join(["compress", *map(hidden, self._words)])  # word by word: quoting would change a password


class _Log(logging.Handler):
    """Keeps lines, and once a file is open writes each at once and in one piece: others may write there too."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = logging.Formatter(_LINE, _TIME, style="{")
        self.lines.converter = time.gmtime
        self.kept: deque[logging.LogRecord] = deque(maxlen=_KEPT)
        self.path = Path()
        self.file: int | None = None
        self.registries = [found[0] for word in sys.argv if (found := _URI.search(word))]
        self.registries += [os.environ.get(name, "") for name in _REGISTRIES]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line and write it; a file that takes no more ends the log, not the command."""
        self.kept.append(record)
        try:
            self.write((record,))
        except OSError as error:
            self.shut()
            typer.echo(f"compress: the log {self.path} ends here: {error.strerror}", err=True)

    def open(self, path: Path, flags: int = 0, mode: int = 0o666) -> None:
        """Append what was kept, and from now on every line, to a file.

        Raises:
            OSError: It takes none.
        """
        # O_NONBLOCK: a pipe that nobody reads would be waited for
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | flags, mode)
        self.path = path
        os.set_blocking(self.file, True)
        try:
            self.write(self.kept)
        except OSError:
            self.shut()
            raise

    def write(self, records: Iterable[logging.LogRecord]) -> None:
        """Append lines to the file, if one is open."""
        if self.file is None:
            return
        for record in records:
            data = f"{printable(hidden(self.lines.format(record)))}\n".encode()
            while data:  # a disk that is nearly full takes a part
                data = data[os.write(self.file, data) :]

    def shut(self) -> None:
        """Write to no file any more."""
        if self.file is not None:
            os.close(self.file)
        self.file = None
