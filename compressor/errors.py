"""All errors, and the exit code each one ends in.

```
* CompressorError
  + InputError      the caller's recipe, model or data is wrong     exit 2
  + MachineError    this machine lacks a package or a device        exit 5
  + RungError       one rung could not be built                     recorded in its Trial, the climb goes on
    - CutOffError   its process crashed or went past a limit        the same
  + OutOfTimeError  limits.run is over                              the run ends with its report, exit 4 or 0
  + PublishError    the registry refused; the report is on disk     exit 6
* Stopped           SIGINT, SIGTERM or SIGHUP asked for the end     exit 130, 143, 129
```

Sorted by who acts. A gate that is not met is a `Verdict`, never an exception.
Messages say where, what was found, what was expected, what to do. What they quote may come from anywhere.
"""

from __future__ import annotations

import errno
import re
import signal

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
)
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_SENTENCE = 600
_END = 0.3  # of a text that is cut, since what to do stands there
# what moves a terminal's cursor or colours it, ends a line, turns the direction of writing, or cannot be encoded
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable(text: str, longest: int = 2000) -> str:
    """Give text on one line, in which a terminal finds nothing but characters to show; the middle of a long one goes.

    Of names that come from models, files and recipes, which may hold anything.
    """
    shown = _UNPRINTABLE.sub(_escaped, " ".join(text.splitlines()))
    end = int(longest * _END)
    return shown if len(shown) <= longest else f"{shown[: longest - end - 3]} … {shown[-end:]}"


def root(error: BaseException) -> BaseException:
    """Give the exception that others were raised from."""
    return error if error.__cause__ is None else root(error.__cause__)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class CompressorError(Exception):
    """Anything this package refuses with a sentence meant for its user, or with several, each an argument."""

    exit_code = 1

    def __str__(self) -> str:
        return "\n".join(printable(str(sentence), _SENTENCE) for sentence in self.args)


class InputError(CompressorError):
    """The caller's recipe, model or data is wrong."""

    exit_code = 2


class MachineError(CompressorError):
    """This machine lacks a package, a device, disk space or a permission."""

    exit_code = 5


class RungError(CompressorError):
    """One rung of the ladder could not be built; the others can."""

    exit_code = 3


class CutOffError(RungError):
    """A piece of work crashed or went past a limit, which says nothing of how it would end another time."""


class OutOfTimeError(CompressorError):
    """The whole run may take no longer; what was done until then is reported."""

    exit_code = 4


class PublishError(CompressorError):
    """The registry refused; everything it should have held is on disk."""

    exit_code = 6


class Stopped(SystemExit):
    """A signal asked for the end; no `Exception`, so that no library on the way takes it for an error of its own."""

    def __init__(self, number: int) -> None:
        """Take the number of the signal, which the exit code tells."""
        super().__init__(128 + number)
        self.why = f"stopped by {signal.Signals(number).name}"


def refused(error: OSError) -> MachineError | None:
    """Translate what the operating system refuses for want of space or permission; None for anything else."""
    where = error.filename2 or error.filename  # of a copy, the second is where it goes
    if error.errno in _NO_ROOM:
        return MachineError(
            f"{where or 'the disk'}: no space left; free some, or choose another disk with --output or TMPDIR"
        )
    if error.errno in _NO_WAY:
        return MachineError(f"{where}: cannot be written ({error.strerror}); choose another place with --output")
    if error.errno in _NO_LOCKS:
        return MachineError(
            f"{error.filename or 'the file system'}: has no locks ({error.strerror}); choose another place with "
            "--output or TMPDIR"
        )
    return None
