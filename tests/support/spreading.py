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


class FilesAndParts(LoadScopeScheduling):
    """One worker has a whole file; of those that are spread, the tests with the same parameters."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file not in SPREAD:
            return file
        _, bracket, parameters = test.partition("[")
        return f"{file}[{parameters}" if bracket else nodeid
