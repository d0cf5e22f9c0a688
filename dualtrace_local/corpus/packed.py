"""Files that are packed with gzip, read as a stream: no part of them is ever held but what is being read."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

BOMB_FROM = 1 << 30
BOMB_RATIO = 100
"""Reading stops where more than BOMB_FROM bytes came out of a file that is smaller by more than this. Chats in JSON shrink to a third
or a tenth; ten gigabytes that were packed into ten megabytes are no chats."""


class Unpacked(io.RawIOBase):
    """The bytes of a gzip file. One that is cut off, damaged or a bomb simply ends, and ``fault`` says why."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fault = ""
        self._packed = path.stat().st_size
        self._size = 0
        self._file = gzip.open(path, "rb")  # noqa: SIM115 - closed by close

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """The next bytes; 0 at the end and at a fault."""
        if self.fault:
            return 0
        try:
            data = self._file.read1(len(buffer))
        except EOFError:
            self.fault = "the gzip file is cut off here; copy it again"
            return 0
        except (zlib.error, gzip.BadGzipFile):
            self.fault = "the gzip file is damaged here; copy it again"
            return 0
        self._size += len(data)
        if self._size > max(BOMB_FROM, BOMB_RATIO * self._packed):
            self.fault = f"unpacks to more than {BOMB_RATIO} times its size, as no chats do; what follows is not read"
            return 0
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
