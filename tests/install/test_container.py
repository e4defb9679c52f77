"""The recipe of a container image: built and run by podman, from a system of Debian's packages."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deb import RECOMMENDS, RELEASES
from support.install_systems import DIST, newest, start_root

ROOT = Path(__file__).parent.parent.parent
RECIPE = ROOT / "setup/Containerfile"
RELEASE = RELEASES[-1]
BASE = f"localhost/debian:{RELEASE.name}"
IMAGE = "localhost/diskproof"
# crun refuses hosts with both versions of control groups; podman's usual limits may be above ours.
ENTER = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
RIGHTS = ("--cap-add=SYS_ADMIN,SYS_PTRACE", "--security-opt=seccomp=unconfined")
"""QEMU is put into namespaces of its own, and what it has open is read; Debian 13's libaio calls
io_pgetevents, which the profile of Debian 12's podman does not know."""
LIMITS = ("--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
STUDY = """name = "contained"
workloads = ["rand-read-4k-d32"]
[factors]
frontend = ["host", "daemon"]
cache = ["none", "writeback"]
[protocol]
blocks = 2
size = "32MiB"
runtime = "1s"
ramp = "100ms"
"""


@dataclass(frozen=True)
class Podman:
    """With images and containers in a folder of its own."""

    folder: Path

    def __call__(
        self, *words: str, expected: Sequence[int] = (0,), stdin: int | None = None
    ) -> str:
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", "podman"]
        places = ["--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")]
        done = subprocess.run(
            [*argv, *places, *words], capture_output=True, text=True, timeout=1800, check=False,
            stdin=stdin,
        )  # fmt: skip
        assert done.returncode in expected, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def start(self, data: Path, *words: str, expected: Sequence[int] = (0,)) -> str:
        # Others may be measuring on the host that this runs on.
        own = (f"--volume={data}:/data", "--env=DISKPROOF_LOCK=/data/lock")
        container = ("run", "--rm", "--network=none", *RIGHTS, *LIMITS, *own, IMAGE, *words)
        return self(*container, expected=expected)


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """With the image; its base is a fresh Debian, as a registry would give it."""
    with tempfile.TemporaryDirectory(prefix="diskproof-image-", dir="/var/tmp") as folder:
        podman = Podman(Path(folder))
        wanted = ("ca-certificates", f"python{RELEASE.python}", *RECOMMENDS)
        with start_root(RELEASE.name, podman.folder, f"--include={','.join(wanted)}") as root:
            argv = ["tar", "--one-file-system", "-C", root, "-c", "."]
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as tar:
                assert tar.stdout
                podman("import", "-", BASE, stdin=tar.stdout.fileno())
        deb = newest(f"*~deb{RELEASE.number}_*.deb")
        podman(
            *("build", "--isolation=chroot", "--network=host", f"--file={RECIPE}"),
            *(f"--build-arg=BASE={BASE}", f"--build-arg=DEB={deb}", f"--tag={IMAGE}", str(DIST)),
        )
        yield podman


def test_the_recipe_brings_all_that_the_package_recommends() -> None:
    assert set(RECOMMENDS) <= set(RECIPE.read_text().split())


def test_doctor_is_what_it_says_first(podman: Podman, tmp_path: Path) -> None:
    told = podman.start(tmp_path, expected=(0, 3))
    assert "fio" in told and "QEMU" in told
    assert podman.start(tmp_path, "--version").startswith("diskproof ")


def test_a_study_is_measured_and_stays_on_the_volume(podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "contained.toml").write_text(STUDY)
    podman.start(tmp_path, "run", "contained.toml", "--quiet")
    rows = json.loads(podman.start(tmp_path, "show", "--json"))
    assert rows
    assert (tmp_path / "diskproof.sqlite").exists()
