"""Background processes of an application, and the private files in the state folder that describe them."""

from dagwright.server.binary import print_progress
from dagwright.server.daemon import Daemon
from dagwright.server.locks import holding_lock
from dagwright.store.private_files import UMASK, make_private_folder, replace_private

__all__ = ["UMASK", "Daemon", "holding_lock", "make_private_folder", "print_progress", "replace_private"]
