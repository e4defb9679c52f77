"""Foreign results as records of ours. One format = one file; all answer with ``Imported``."""

from diskproof.store.formats.imported import Imported

__all__ = ["Imported"]
