"""What the recipe needs of RocksDB's C interface (rocksdb/c.h): Debian has no module of it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

Handle = ctypes.c_void_p
_FLAG, _SIZE = ctypes.c_ubyte, ctypes.c_size_t
_TYPES = {
    "options_create": (Handle,),
    "options_set_create_if_missing": (None, Handle, _FLAG),
    "options_set_write_buffer_size": (None, Handle, _SIZE),
    "open": (Handle, Handle, ctypes.c_char_p),
    "close": (None, Handle),
    "writeoptions_create": (Handle,),
    "writeoptions_set_sync": (None, Handle, _FLAG),
    "put": (None, Handle, Handle, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE),
    "readoptions_create": (Handle,),
    "create_iterator": (Handle, Handle, Handle),
    "iter_seek_to_first": (None, Handle),
    "iter_valid": (_FLAG, Handle),
    "iter_key": (Handle, Handle, ctypes.POINTER(_SIZE)),
    "iter_value": (Handle, Handle, ctypes.POINTER(_SIZE)),
    "iter_next": (None, Handle),
    "iter_get_error": (None, Handle),
    "iter_destroy": (None, Handle),
}
_TELLS_ERRORS = {"open", "put", "iter_get_error"}
_LIBRARY = ctypes.CDLL("librocksdb.so.7.8")
BUFFER_BYTES = 1 << 16
"""So small that tables are written on the way."""


class Broken(Exception):
    """RocksDB's own words."""


def _call(name: str, *given: object) -> int:
    """What it answers; a handle, mostly. Raises Broken."""
    function = getattr(_LIBRARY, f"rocksdb_{name}")
    error = ctypes.c_char_p()
    told = [ctypes.byref(error)] if name in _TELLS_ERRORS else []
    function.restype, *kinds = _TYPES[name]
    function.argtypes = [*kinds, *(ctypes.POINTER(ctypes.c_char_p) for _ in told)]
    answer: int = function(*given, *told)
    if error.value is not None:
        raise Broken(error.value.decode(errors="replace"))
    return answer


@contextmanager
def start_database(folder: str, *, create: bool = False) -> Iterator[int]:
    options = _call("options_create")
    _call("options_set_create_if_missing", options, create)
    _call("options_set_write_buffer_size", options, BUFFER_BYTES)
    database = _call("open", options, folder.encode())
    try:
        yield database
    finally:
        _call("close", database)


def put(database: int, key: bytes, value: bytes, *, sync: bool) -> None:
    options = _call("writeoptions_create")
    _call("writeoptions_set_sync", options, sync)
    _call("put", database, options, key, len(key), value, len(value))


def read_all(database: int) -> dict[bytes, bytes]:
    """Every key, checksums verified. Raises Broken."""
    found, place = {}, _call("create_iterator", database, _call("readoptions_create"))
    try:
        _call("iter_seek_to_first", place)
        while _call("iter_valid", place):
            found[_part(place, "key")] = _part(place, "value")
            _call("iter_next", place)
        _call("iter_get_error", place)
    finally:
        _call("iter_destroy", place)
    return found


def _part(place: int, name: str) -> bytes:
    size = _SIZE()
    start = _call(f"iter_{name}", place, ctypes.byref(size))
    return ctypes.string_at(start, size.value)
