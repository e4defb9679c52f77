"""A search spread over two worker processes finds what one finds here.

Requires root, /dev/fuse, qemu-storage-daemon, and Dask (in the packages for developers).
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from diskproof.cli import run_command_line
from diskproof.crash import fleet
from diskproof.crash.explore import StateSearch, explore
from diskproof.crash.fleet import pack_evidence, start_fleet, unpack_evidence
from diskproof.crash.run import find_check
from diskproof.crash.verdict import Explored, judge
from diskproof.errors import HostError, UsageError
from diskproof.process.start import start_process
from diskproof.study.crash import CrashRules
from support.recording import needs_fuse
from support.written import make_cell, start_written

RULES = CrashRules(records=24, seconds=20.0, states=600, explore_seconds=600.0, seed=5)
CLUSTER = """
import signal, sys
from distributed import LocalCluster
options = {"scheduler_port": 0, "dashboard_address": "127.0.0.1:0", "local_directory": sys.argv[1]}
with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", **options) as cluster:
    print(cluster.scheduler_address, flush=True)
    signal.pause()
"""


@contextmanager
def start_cluster(room: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Two workers with a thread each, on loopback, below a process of their own."""
    reading, writing = os.pipe()
    argv = [sys.executable, "-c", CLUSTER, str(room)]
    log = room / "cluster.log"
    with os.fdopen(reading) as lines, os.fdopen(writing, "wb") as stdout:
        with start_process(argv, name="dask", log=log, cwd=room, stdout=stdout) as process:
            stdout.close()
            address = lines.readline().strip()
            assert address.startswith("tcp://127.0.0.1:"), process.read_log().decode()
            yield address, psutil.Process(process.pid)
    assert psutil.wait_procs(find_group(process.pid), timeout=60)[1] == []


def find_group(group: int) -> list[psutil.Process]:
    """Who is left of a process group, and not only waits to be buried."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_cluster(tmp_path_factory.mktemp("cluster")) as (address, process):
        served = set[str]()
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # one of PostgreSQL's workers that has ended
                served |= {c.laddr.ip for c in each.net_connections() if c.status == "LISTEN"}
        assert served == {"127.0.0.1"}
        yield address


@contextmanager
def start_search(folder: Path, form: str) -> Iterator[StateSearch]:
    """A ledger on a disk whose flushes are ignored, recorded for real, to be searched."""
    cell = make_cell("ledger", "daemon", RULES, cache="unsafe", format=form)
    with start_written(cell, folder) as recorded:
        yield StateSearch(
            log=recorded.killed,
            base=recorded.base,
            fault="power",
            check=find_check(cell),
            promises=recorded.promises,
            sector=512,
            seed=RULES.seed,
            states=RULES.states,
            seconds=RULES.explore_seconds,
        )


@needs_fuse
@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_two_workers_find_what_one_process_finds(form: str, address: str, tmp_path: Path) -> None:
    seen: list[Explored] = []
    with start_search(tmp_path, form) as search, start_fleet(address) as explorer:
        alone = explore(search, tmp_path, lambda found: None)
        together = explorer(search, tmp_path, seen.append)
        lying = explorer(replace(search, fault="lying-device"), tmp_path, seen.append)
    assert alone.failure == together.failure == lying.failure == ""
    assert 0 < seen[0].states_checked < seen[1].states_checked == alone.states_checked
    assert together.worst is not None and alone.worst is not None
    # Of the worst state's content one part tells as much as it has heard by then.
    told = replace(alone.worst, lost_sequences=together.worst.lost_sequences)
    assert together == replace(alone, seconds=together.seconds, worst=told)
    assert replace(judge(together), seconds=0.0) == replace(judge(alone), seconds=0.0)
    assert judge(together).verdict == judge(lying).verdict != "keeps"


@needs_fuse
def test_a_program_is_judged_on_a_cluster_from_the_command_line(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("write").write_text("#!/bin/sh\nfor n in 1 2 3; do echo $n >> file; echo $n; done\n")
    Path("check").write_text(
        '#!/bin/sh\ngone=$(diff "$DISKPROOF_ACKNOWLEDGED" file | grep -c "^<")\n'
        "[ $gone = 0 ] || { echo $gone; exit 1; }\n"
    )
    for name in ("write", "check"):
        Path(name).chmod(0o755)
    commands = [
        "--writer",
        "./write",
        "--check",
        "./check",
        "--budget",
        "60s",
        "--cluster",
        address,
    ]
    assert run_command_line(["crash", *commands, "--json", "data"]) == 1
    rows = {row["fault"]: row for row in json.loads(capsys.readouterr().out)}
    assert [rows[fault]["verdict"] for fault in ("power", "qemu-kill")] == ["loses", "keeps"]
    assert rows["power"]["age_seconds"] > 0
    assert rows["power"]["lost"] == 3 and rows["power"]["states_checked"] > 3


@needs_fuse
def test_a_check_that_is_nowhere_else_is_a_failure_with_the_workers_name(
    address: str, tmp_path: Path
) -> None:
    with start_search(tmp_path, "raw") as search, start_fleet(address) as explorer:
        check = {"kind": "command", "argv": ["/nowhere/check"], "timeout_seconds": 5.0}
        found = explorer(replace(search, check=check), tmp_path, lambda found: None)
    assert "/nowhere/check" in found.failure and judge(found).verdict == "undecided"


@needs_fuse
@pytest.mark.parametrize("scheduler", [True, False])
def test_a_cluster_that_dies_leaves_it_undecided(scheduler: bool, tmp_path: Path) -> None:
    """The check kills it: both workers again and again, or all of it at once."""
    seen: list[Explored] = []
    with start_search(tmp_path, "raw") as search, start_cluster(tmp_path) as (address, process):
        with start_fleet(address) as explorer:
            killer = ["pkill", "-KILL", "-g" if scheduler else "-P", str(process.pid)]
            check = {"kind": "command", "argv": killer, "timeout_seconds": 90.0}
            found = explorer(replace(search, check=check), tmp_path, seen.append)
    assert found.failure and judge(found).verdict == "undecided", found
    assert found.states_checked == 0


def test_what_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "CONNECT_SECONDS", 1.0)
    with pytest.raises(UsageError, match="no address"):
        with start_fleet("host:8786"):
            pass
    with pytest.raises(HostError, match="no cluster answers"):
        with start_fleet("tcp://127.0.0.1:1"):
            pass


@needs_fuse
def test_evidence_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    with start_search(tmp_path, "raw") as search:
        evidence = pack_evidence(search)
        assert pack_evidence(search).id == evidence.id
        log = search.log.read_bytes()
    scratch = tmp_path / "scratch"
    with pytest.raises(HostError, match="did not arrive whole"):
        unpack_evidence(replace(evidence, log=log[:-1]), scratch)
    folder = unpack_evidence(evidence, scratch)
    assert (folder / "log").read_bytes() == log and (folder / "base" / "disk.raw").is_file()
    assert unpack_evidence(evidence, scratch) == folder
    assert [path.name for path in scratch.iterdir()] == [evidence.id]
