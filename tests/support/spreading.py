"""Which worker has which tests, where ``--dist loadfile`` is asked for."""

from xdist.scheduler import LoadScopeScheduling

SPREAD = (
    "tests/e2e/test_verbs.py",
    "tests/e2e/test_verbs_refusals.py",
    "tests/e2e/test_verbs_running.py",
    "tests/integration/test_crash_command.py",
    "tests/vm/test_crash_writers_guest.py",
    "tests/vm/test_guest_boot.py",
    "tests/vm/test_guest_frontend.py",
)
"""Long files whose tests share nothing that costs, or only those with the same parameters."""

MACHINES = (
    "tests/integration/test_advice_libvirt.py",
    "tests/integration/test_advise_machine.py",
    "tests/integration/test_audit_libvirt.py",
    "tests/integration/test_audit_running.py",
    "tests/integration/test_running_machines.py",
    "tests/vm/test_advice_qemu.py",
    "tests/vm/test_audit_guest.py",
)
"""They look for all machines of the host, and ask each whose monitor is free: one at a time."""


class FilesAndParts(LoadScopeScheduling):
    """One worker has a whole file; of those that are spread, the tests with the same parameters."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file in MACHINES:
            return "machines"
        if file not in SPREAD:
            return file
        _, bracket, parameters = test.partition("[")
        return f"{file}[{parameters}" if bracket else nodeid
