"""Folders and files that only their owner may read: the state folder and its content.

Histories contain the arguments and results of all runs, so other users of the machine must not read the histories. The
mode of the folder (0700) is enough to exclude other users. Files also have mode 0600, in case the mode of the folder is
changed later.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
UMASK = 0o077
"""Umask of processes that write only into the state folder, such as the Temporal server."""
_OTHERS_BITS = 0o077
"""Permission bits of the group and of other users."""


def make_private_folder(folder: Path) -> bool:
    """Create a folder with mode 0700, or change its mode to 0700; return whether only its owner has access.

    Folders of other users, and folders that all users share (sticky bit, like `/tmp`), keep their mode.

    Raises:
        OSError: the folder cannot be created.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    return _restrict(folder, FOLDER_MODE)


def make_files_private(folders: Iterable[Path]) -> None:
    """Set mode 0600 for the files directly in the folders; skip links, and files of other users."""
    for path in [path for folder in folders if folder.is_dir() for path in folder.iterdir()]:
        # Other commands may remove their lock files at this moment.
        with suppress(FileNotFoundError):
            if stat.S_ISREG(path.lstat().st_mode):
                _restrict(path, FILE_MODE)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=private_opener)`, with mode 0600 if it is created."""
    return os.open(path, flags, FILE_MODE)


def write_private(path: Path, text: str) -> None:
    """Write a text file that only its owner may read.

    Raises:
        OSError: the file cannot be written.
    """
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)


def replace_private(path: Path, text: str) -> None:
    """Replace a file as `write_private` does, but atomically: readers see either the old or the new content.

    Raises:
        OSError: the file cannot be written.
    """
    draft = path.with_suffix(".new")
    write_private(draft, text)
    draft.replace(path)


def _restrict(path: Path, mode: int) -> bool:
    current_mode = path.stat().st_mode
    if not current_mode & _OTHERS_BITS:
        return True
    if current_mode & stat.S_ISVTX:
        return False
    try:
        path.chmod(mode)
    except PermissionError:
        return False
    return True
