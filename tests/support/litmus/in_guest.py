"""The trees that a crash of a litmus program leaves on a file system of our guest's kernel: these
modules run there, with our recorder and explorer."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from diskproof.crash.real_fs import RealFs
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import build_guest
from diskproof.host.accel import probe_accel
from diskproof.process.native import require_native
from diskproof.qemu.machine import GuestMachine
from support.in_guest import WORK, bring_sources
from support.litmus.operations import Litmus
from support.litmus.reach import Budget, Reached

NATIVE = ("diskproof-recordfs", "diskproof-states")
MEMORY = 2 << 30
_LITMUS = Path(__file__).parent
_SLOW = 600.0
"""What there is beside the budget, emulated: Python's start, files, mounts."""

Reacher = Callable[[Litmus, RealFs, Budget], Reached]


@contextmanager
def start_lab(run_dir: Path) -> Iterator[tuple[Reacher, str]]:
    """A guest that sees the states of one program after another, and its kernel's release. The
    ``Reacher`` raises RunFailure."""
    machine = GuestMachine(probe_accel().accel, memory_bytes=MEMORY)
    with start_guest(build_guest(extra="storage"), machine, run_dir=run_dir) as guest:
        guest.load_modules(["loop", "fuse"])
        bring_sources(guest.channel, _files())

        def reach_there(program: Litmus, on: RealFs, budget: Budget) -> Reached:
            guest.load_modules([on.kind])
            told = {"program": asdict(program), "on": asdict(on), "budget": asdict(budget)}
            done = guest.channel.exec(
                ["python3", "-P", "-m", "support.litmus.reach_told"],
                timeout=len(budget.writebacks) * budget.seconds + _SLOW,
                cwd=WORK,
                env={"PYTHONPATH": f"{WORK}/src:{WORK}/tests", "TMPDIR": WORK},
                stdin=json.dumps(told).encode(),
            )
            if done.exit.code != 0:
                why = done.stderr.decode(errors="replace")
                raise RunFailure("guest", f"{program.name} did not run", why)
            found = json.loads(done.stdout)
            trees = {int(count): frozenset(texts) for count, texts in found["trees"].items()}
            return Reached(trees, found["counts"])

        yield reach_there, guest.files.kernel_release
        guest.power_off()


def _files() -> dict[Path, str]:
    """By where they are, names below ``WORK``. Our programs are found as in a checkout."""
    tests = _LITMUS.parents[1]
    modules = [_LITMUS.parent / "__init__.py", *_LITMUS.glob("*.py")]
    files = {each: f"tests/{each.relative_to(tests)}" for each in modules}
    files[tests.parent / "native" / "Cargo.toml"] = "native/Cargo.toml"
    programs = {require_native(name): f"native/target/release/{name}" for name in NATIVE}
    return files | programs
