"""Memory that is to give, from recorded shapes of /proc and of control groups."""

from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.host.memory import SECOND, find_groups, read_available_bytes
from diskproof.host.memory_limit import hands_down_memory

MEBIBYTE = 1 << 20


def put(folder: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return folder


def read(folder: Path, group: str, groups: dict[str, object], available: int = 4096) -> int:
    """MiB."""
    meminfo = f"MemTotal: 9999999 kB\nMemAvailable:    {available << 10} kB"
    proc = put(folder / "proc", {"meminfo": meminfo, "self/cgroup": group})
    return read_available_bytes(proc, put(folder / "cgroup", groups)) // MEBIBYTE


def second(path: str, limit: object, used: int, cache: int = 0) -> dict[str, object]:
    stat = f"anon 5\ninactive_file {cache * MEBIBYTE}\nactive_file 0"
    named = {"memory.max": limit, "memory.current": used * MEBIBYTE, "memory.stat": stat}
    return {f"{path}/{name}": value for name, value in named.items()}


def test_without_limits_it_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert read(tmp_path, "0::/", {}) == 4096
    assert read(tmp_path, "0::/a", second("a", "max", 10)) == 4096


def test_the_tightest_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    inner = second("a/b", 3000 * MEBIBYTE, 100)
    outer = second("a", 2000 * MEBIBYTE, 500, cache=200)
    assert read(tmp_path, "0::/a/b", {**inner, **outer}) == 1700


def test_the_first_version_has_other_names(tmp_path: Path) -> None:
    groups = {
        "memory/x/memory.limit_in_bytes": 1024 * MEBIBYTE,
        "memory/x/memory.usage_in_bytes": 512 * MEBIBYTE,
        "memory/x/memory.stat": f"total_inactive_file {MEBIBYTE}\ntotal_active_file {MEBIBYTE}",
    }
    assert read(tmp_path, "4:cpuset:/\n3:cpu,memory:/x\n0::/", groups) == 514


def test_a_path_of_the_host_that_a_container_does_not_see(tmp_path: Path) -> None:
    groups = {
        "memory/memory.limit_in_bytes": 700 * MEBIBYTE,
        "memory/memory.usage_in_bytes": 0,
        "memory/memory.stat": "total_inactive_file 0",
    }
    assert read(tmp_path, "3:memory:/of/the/host", groups) == 700


def test_more_in_use_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "0::/a", second("a", 100 * MEBIBYTE, 200)) == 0


def test_a_kernel_that_does_not_tell(tmp_path: Path) -> None:
    proc = put(tmp_path, {"meminfo": "MemTotal: 5 kB", "self/cgroup": "0::/"})
    with pytest.raises(HostError, match="does not tell"):
        read_available_bytes(proc, tmp_path)


def test_this_host() -> None:
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert 0 < read_available_bytes() <= int(meminfo["MemTotal"].split()[0]) << 10


def test_the_second_version_takes_groups_below_those_that_hand_memory_down(tmp_path: Path) -> None:
    """A group with processes hands nothing down: ours goes beside it."""
    tree = {"user/cgroup.subtree_control": "cpu memory", "user/me/cgroup.subtree_control": ""}
    top = put(tmp_path / "cgroup", {**tree, "cgroup.subtree_control": "memory"})
    assert hands_down_memory(SECOND, top / "user") and hands_down_memory(SECOND, top)
    assert not hands_down_memory(SECOND, top / "user/me")
    proc = put(tmp_path / "proc", {"self/cgroup": "0::/user/me"})
    assert list(find_groups(proc, top)) == [(SECOND, top / "user/me", top)]
