"""All errors, and the exit code each one ends in.

```
* CompressorError
  + InputError      the caller's recipe, model or data is wrong     exit 2
  + MachineError    this machine lacks a package or a device        exit 5
  + RungError       one rung could not be built                     recorded in its Trial, the climb goes on
  + PublishError    the registry refused; the report is on disk     exit 6
```

Sorted by who acts. A gate that is not met is a `Verdict`, never an exception.
Messages say where, what was found, what was expected, what to do.
"""

from __future__ import annotations

import errno

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
)


class CompressorError(Exception):
    """Anything this package refuses with a sentence meant for its user."""

    exit_code = 1


class InputError(CompressorError):
    """The caller's recipe, model or data is wrong."""

    exit_code = 2


class MachineError(CompressorError):
    """This machine lacks a package, a device, disk space or a permission."""

    exit_code = 5


class RungError(CompressorError):
    """One rung of the ladder could not be built; the others can."""

    exit_code = 3


class PublishError(CompressorError):
    """The registry refused; everything it should have held is on disk."""

    exit_code = 6


def refused(error: OSError) -> MachineError | None:
    """Translate what the operating system refuses for want of space or permission; None for anything else."""
    if error.errno in _NO_ROOM:
        return MachineError(f"{error.filename or 'the disk'}: no space left; free some, or choose another --output")
    if error.errno in _NO_WAY:
        return MachineError(
            f"{error.filename}: cannot be written ({error.strerror}); choose another place with --output"
        )
    return None
