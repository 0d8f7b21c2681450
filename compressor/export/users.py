"""What the caller's own code raises, as one sentence with the line of theirs.

Code that is not theirs is told by `_is_theirs`.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compressor.errors import CompressorError, InputError

_OURS = Path(__file__).parents[1]
_LONGEST = 200


@contextmanager
def users(model: str) -> Iterator[None]:
    """Run the caller's code.

    Raises:
        InputError: It failed; the sentence has the file and line of the deepest frame in it.
    """
    try:
        yield
    except CompressorError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{model}: {_where(error)}{type(error).__name__}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Give what an exception says, in one line that is not too long."""
    text = " ".join(str(error).split())
    return f"{text[:_LONGEST]} ..." if len(text) > _LONGEST else text or "no more is said"


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


def _is_theirs(file: str) -> bool:
    """Tell whether code was installed neither with Python nor as a package, and is not ours."""
    installed = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return Path(file).is_absolute() and not {_OURS, *installed} & set(Path(file).parents)
