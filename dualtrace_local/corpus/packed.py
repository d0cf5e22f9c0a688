"""Files that are packed with gzip or lie in a zip archive, read as a stream: no part of them is ever held but what is being read."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from typing import IO

BOMB_FROM = 1 << 30
BOMB_RATIO = 100
"""Reading stops where more than BOMB_FROM bytes came out of a file that is smaller by more than this. Chats in JSON shrink to a third
or a tenth; ten gigabytes that were packed into ten megabytes are no chats."""


class Unpacked(io.RawIOBase):
    """The bytes of an opened stream that unpacks. One that is cut off, damaged or a bomb simply ends, and ``fault`` says why.

    ``packed`` is the size of what is unpacked in bytes, ``what`` the kind of file for messages.
    """

    def __init__(self, file: gzip.GzipFile | IO[bytes], packed: int, what: str) -> None:
        super().__init__()
        self.fault = ""
        self._packed = packed
        self._what = what
        self._size = 0
        self._file = file

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """The next bytes; 0 at the end and at a fault."""
        if self.fault:
            return 0
        try:
            data: bytes = self._file.read1(len(buffer))  # type: ignore[union-attr]
        except EOFError:
            self.fault = f"the {self._what} is cut off here; copy it again"
            return 0
        except (zlib.error, gzip.BadGzipFile, zipfile.BadZipFile):
            self.fault = f"the {self._what} is damaged here; copy it again"
            return 0
        self._size += len(data)
        if self._size > max(BOMB_FROM, BOMB_RATIO * self._packed):
            self.fault = f"unpacks to more than {BOMB_RATIO} times its size, as no chats do; what follows is not read"
            return 0
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the stream."""
        self._file.close()
        super().close()
