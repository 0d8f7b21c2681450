"""What is kept on disk: `files` are written whole, `store` keeps what stages made.

A new kind of file belongs to the module whose sentence fits.
"""

from __future__ import annotations

from compressor.workspace.files import (
    check_temporary,
    check_writable,
    copy,
    file,
    file_name,
    replacing,
    reserve,
    run_folder,
    sha256,
    write_text,
)
from compressor.workspace.store import HOME, Entry, Store, digest, is_key

__all__ = [
    "HOME",
    "Entry",
    "Store",
    "check_temporary",
    "check_writable",
    "copy",
    "digest",
    "file",
    "file_name",
    "is_key",
    "replacing",
    "reserve",
    "run_folder",
    "sha256",
    "write_text",
]
