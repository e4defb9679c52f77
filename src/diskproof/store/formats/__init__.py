"""Foreign results as records of ours. One format = one file; all answer with ``Imported``."""

from diskproof.store.formats.fio import import_fio
from diskproof.store.formats.imported import Imported
from diskproof.store.formats.kvm_perf import import_kvm_perf

__all__ = ["Imported", "import_fio", "import_kvm_perf"]
