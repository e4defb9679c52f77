"""Fresh Debian systems without compilers, into which we are installed as a stranger would."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.guest.ours import packages
from diskproof.process.start import require_tool
from support.install_systems import BROUGHT, SUITES, USER, System, find_mirror


@pytest.fixture(scope="session", params=SUITES)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    """A root made by mmdebstrap from nothing but the suite's own packages."""
    suite = str(request.param)
    with tempfile.TemporaryDirectory(prefix="diskproof-install-", dir="/var/tmp") as folder:
        root = Path(folder) / suite
        subprocess.run(
            [
                *("unshare", "--mount", "--propagation", "private", "--pid", "--fork"),
                *("--kill-child", "--", require_tool("mmdebstrap", "mmdebstrap"), "--mode=root"),
                *("--variant=minbase", f"--include={','.join(BROUGHT)}"),
                *packages.fetch_options(Path(folder) / "apt.conf"),
                *(suite, root, f"deb {find_mirror()} {suite} main"),
            ],
            check=True,
            capture_output=True,
            env=packages.environment(os.environ),
            timeout=packages.FETCH_SECONDS,
        )
        for name in ("hosts", "resolv.conf"):
            shutil.copy(f"/etc/{name}", root / "etc" / name)
        # Whom this machine trusts to bring packages is its own affair.
        trusted = Path("/etc/ssl/certs/ca-certificates.crt")
        shutil.copy(trusted, root / str(trusted)[1:])
        home = root / "home" / "user"
        home.mkdir()
        os.chown(home, USER, USER)
        yield System(suite, root)
