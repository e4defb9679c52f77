"""Writes whose source comes page by page, so that what happens while one is under way is decided:
write(2) copies a page, and waits for the next as long as nobody gives it (userfaultfd(2))."""

import ctypes
import mmap
import os
import select
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fcntl import ioctl

_PAGE = mmap.PAGESIZE
_SECONDS = 0.05
"""Between two looks whether a write has ended."""
_SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_API, _REGISTER, _COPY = 0xC018AA3F, 0xC020AA00, 0xC028AA03
"""linux/userfaultfd.h: UFFDIO_*."""
_VERSION, _MISSING = 0xAA, 1
_MESSAGE = 32
"""Bytes of an event."""


def write_slowly(
    handles: Sequence[int], content: bytes, offset: int, between: Callable[[], None]
) -> None:
    """The content goes to all files at once; where one page of each has come, and not the next,
    ``between`` is called. Raises OSError."""
    inset = offset % _PAGE
    span = -(-(inset + len(content)) // _PAGE) * _PAGE
    padded = (bytes(inset) + content).ljust(span, b"\0")
    region = mmap.mmap(-1, span * len(handles))
    with _faults_of(region) as faults, ThreadPoolExecutor(len(handles)) as pool:
        places = range(0, len(region), span)
        begins = [place + inset for place in places]
        sources = [memoryview(region)[begin : begin + len(content)] for begin in begins]
        writes = [
            pool.submit(os.pwrite, *each, offset) for each in zip(handles, sources, strict=True)
        ]
        done = 0
        try:
            for page in range(0, span, _PAGE):
                if not faults.wait(len(handles), lambda: any(each.done() for each in writes)):
                    break
                if page:
                    between()
                done = page + _PAGE
                for place in places:
                    faults.give(place + page, padded[page : page + _PAGE])
        finally:
            for page in range(done, span, _PAGE):
                for place in places:
                    faults.give(place + page, bytes(_PAGE))
        if any(each.result() != len(content) for each in writes):
            raise OSError("not all was written")


class _Faults:
    def __init__(self, handle: int, begin: int) -> None:
        self._handle, self._begin = handle, begin

    def wait(self, count: int, is_over: Callable[[], bool]) -> bool:
        """Until so many threads wait for a page each; or it is over, and they do not."""
        while count and not is_over():
            if select.select([self._handle], [], [], _SECONDS)[0]:
                os.read(self._handle, _MESSAGE)
                count -= 1
        return not count

    def give(self, at: int, content: bytes) -> None:
        source = ctypes.create_string_buffer(content, _PAGE)
        place, address = self._begin + at, ctypes.addressof(source)
        ioctl(self._handle, _COPY, struct.pack("@QQQQq", place, address, _PAGE, 0, 0))


@contextmanager
def _faults_of(region: mmap.mmap) -> Iterator[_Faults]:
    number = _SYS_USERFAULTFD[os.uname().machine]
    handle = ctypes.CDLL(None, use_errno=True).syscall(number, os.O_CLOEXEC | os.O_NONBLOCK)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    begin = ctypes.addressof(ctypes.c_char.from_buffer(region))
    try:
        ioctl(handle, _API, struct.pack("@QQQ", _VERSION, 0, 0))
        ioctl(handle, _REGISTER, struct.pack("@QQQQ", begin, len(region), _MISSING, 0))
        yield _Faults(handle, begin)
    finally:
        os.close(handle)
