"""An open journal: its bytes, frame by frame, and a word on those that had to be skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.store import files, frames, left_out
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.left_out import Skipped

_WINDOW: Final = 1 << 20


class JournalFile:
    """An open journal, read through a window so that hopping over small frames is cheap."""

    def __init__(self, fd: int, path: Path) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self.skipped: list[Skipped] = []
        self._fd = fd
        self._start, self._window = 0, b""
        self.salt = 0

    def read(self, start: int, size: int, window: int = _WINDOW) -> bytes:
        """Bytes from ``start`` on, with the next ones read along."""
        return self._view(start, size, window).tobytes()

    def _view(self, start: int, size: int, window: int) -> memoryview:
        offset = start - self._start
        if offset < 0 or offset + size > len(self._window):
            self._start, offset = start, 0
            length = max(0, min(max(size, window), self.size - start))
            self._window = files.read_at(self._fd, length, start)
        return memoryview(self._window)[offset : offset + size]

    def header(self, offset: int, window: int = _WINDOW) -> frames.Header:
        """Frame header at an offset."""
        return frames.read_header(self.read(offset, frames.HEADER_SIZE, window), self.salt)

    def body(self, offset: int, header: frames.Header, window: int = _WINDOW) -> memoryview:
        """Body of a frame, as it is stored."""
        return self._view(offset + frames.HEADER_SIZE, header.stored, window)

    def skip(self, start: int, stop: int, reason: str, kind: str = left_out.DAMAGED) -> None:
        """Note bytes that cannot be used."""
        self.skipped.append(Skipped(self.path, start, stop, reason, kind))


def begin(source: JournalFile) -> bool:
    """Read the file header; False if the file holds nothing that can be read."""
    if source.size == 0:
        # A kill, or a node's death, between the file's creation and its first write.
        source.skip(0, 0, "empty file", left_out.TORN)
        return False
    try:
        source.salt, intact = frames.read_file_header(source.read(0, frames.FILE_HEADER_SIZE))
    except DamagedError as error:
        source.skip(0, source.size, str(error))
        return False
    if not intact:
        source.skip(0, frames.FILE_HEADER_SIZE, "damaged header; its copies agree on what matters")
    return True


def last_index(source: JournalFile) -> int:
    """Offset of the last index block; 0 if there is none."""
    mark, size = frames.trailer_mark(source.salt), frames.TRAILER_SIZE
    stop = source.size
    reach = size  # a journal that was closed ends with its last index block
    while stop > frames.FILE_HEADER_SIZE:
        start = max(frames.FILE_HEADER_SIZE, stop - reach)
        reach = _WINDOW
        length = min(stop + size - 1, source.size) - start
        window = source.read(start, length, length)
        position = window.rfind(mark)
        while position >= 0:
            offset = frames.read_trailer(window[position : position + size], source.salt)
            if offset is not None:
                return offset
            position = window.rfind(mark, 0, position)
        stop = start
    return 0


def walk(source: JournalFile, start: int) -> Iterator[tuple[int, bytes]]:
    """Offset and canonical bytes of each sample from ``start`` on."""
    offset = start
    while offset < source.size:
        try:
            header = source.header(offset)
        except DamagedError as error:
            resumed = _next_frame(source, offset + 1)
            cut = offset + frames.HEADER_SIZE > source.size
            source.skip(offset, resumed, str(error), left_out.TORN if cut else left_out.DAMAGED)
            offset = resumed
            continue
        if offset + header.size > source.size:
            source.skip(offset, source.size, "the last frame is cut short", left_out.TORN)
            return
        try:
            if header.kind == frames.SAMPLE:
                yield offset, frames.read_sample(header, source.body(offset, header))
            else:
                frames.read_index(header, source.body(offset, header))
        except DamagedError as error:
            source.skip(offset, offset + header.size, str(error))
        offset += header.size


def _next_frame(source: JournalFile, start: int) -> int:
    """Offset of the next intact frame header; the file's size if there is none."""
    mark = source.salt.to_bytes(4, "little")
    while start < source.size:
        window = source.read(start, min(_WINDOW, source.size - start))
        position = window.find(mark)
        while position >= 0:
            try:
                source.header(start + position)
                return start + position
            except DamagedError:
                position = window.find(mark, position + 1)
        start += max(1, len(window) - len(mark) + 1)
    return source.size


def bodies(source: JournalFile, records: NDArray[np.void]) -> Iterator[tuple[int, bytes]]:
    """Position and canonical bytes of each record's sample, in the order of the file."""
    offsets, digests = records["offset"], records["digest"]
    for i in np.argsort(offsets, kind="stable").tolist():
        offset = int(offsets[i])
        try:
            header = source.header(offset)
            if header.kind != frames.SAMPLE or header.check != digests[i]:
                raise DamagedError("another frame stands where the index says")
            yield i, frames.read_sample(header, source.body(offset, header))
        except DamagedError as error:
            source.skip(offset, offset, str(error))
