"""``diskproof monitor`` as a user meets it: watched, interrupted, drawn; own modules; its page.

Requires chromium for the page (apt-get install chromium).
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from e2e.test_page import CUT, DRAWN, MARKS, OUTSIDE
from support.browser import Browser, find_chromium
from support.commands import diskproof
from test_monitor_page import make_json

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "monitor-module.sh"
NEEDS_CHROMIUM = pytest.mark.skipif(find_chromium() is None, reason="needs chromium")


def test_watched_drawn_and_kept_as_parquet(tmp_path: Path) -> None:
    asked = ["--html", "out.html", "--parquet", "out.parquet", "-c", "-m", "0.05", "5"]
    done = diskproof("monitor", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.error_text
    assert "usr" in done.text and "5 samples" in done.error_text
    assert "Where the processors" in (tmp_path / "out.html").read_text()
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 5 and "memory.used [MiB]" in table.column_names
    assert {path.name for path in tmp_path.iterdir()} == {"out.html", "out.parquet"}


def test_a_recording_becomes_the_same_table_from_json_and_csv(tmp_path: Path) -> None:
    asked = ["-c", "-q", "--json", "rec.jsonl", "--csv", "rec.csv", "0.05", "3"]
    assert diskproof("monitor", *asked, cwd=tmp_path).returncode == 0
    for source in ("rec.jsonl", "rec.csv"):
        asked = ["--from", source, "--parquet", f"{source}.parquet"]
        done = diskproof("monitor", *asked, cwd=tmp_path)
        assert done.returncode == 0, done.error_text
    first, second = (tmp_path / f"rec.{kind}.parquet" for kind in ("jsonl", "csv"))
    assert parquet.read_table(first).equals(parquet.read_table(second))


def test_ctrl_c_ends_the_watch_and_leaves_the_page(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "diskproof", "monitor", "--html", "out.html", "-c", "0.05"]
    with subprocess.Popen(
        argv,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        for _ in range(4):  # two lines of heads, then samples
            assert running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        running.stdout.read()
        assert running.wait(60) == 0, running.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--html", "no/such/folder/x.html", "1"], 3, "no folder"),
        (["--html", "out.html", "--json", "x"], 2, "--from FILE"),
        (["--html", "out.html", "--from", "nothing"], 2, "cannot read nothing"),
        (["--html", "out.html", "--from", "x", "-c"], 2, "no meaning with --from"),
        (["--from", "x"], 2, "say what to make of it"),
        (["--html"], 2, "names one file"),
        (["--html", "out.html", "--no-such-option"], 2, "--no-such-option"),
    ],
)
def test_wrong_use_is_told_at_once(
    tmp_path: Path, arguments: list[str], code: int, told: str
) -> None:
    done = diskproof("monitor", *arguments, cwd=tmp_path)
    assert done.returncode == code and told in done.error_text
    assert list(tmp_path.iterdir()) == []


def test_the_help_is_of_both(tmp_path: Path) -> None:
    done = diskproof("monitor", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "--csv <FILE>" in done.text and "--html <FILE>" in done.text


def test_the_example_of_an_own_module(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x")
    asked = ["--module", f"{EXAMPLE} {tmp_path}", "-q", "--json", "-", "0.1", "20"]
    done = diskproof("monitor", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.error_text
    header, *samples = [json.loads(line) for line in done.text.splitlines()]
    names = [column["name"] for column in header["columns"]]
    assert names == ["folder.files", "folder.size", "folder.age"]
    seen = [sample["values"] for sample in samples if sample["values"][0] is not None]
    assert seen and seen[-1][:2] == [1, 1]


def test_the_monitor_is_a_module_of_the_monitor(tmp_path: Path) -> None:
    """As one would watch another host: ``--module 'ssh host diskproof monitor --json'``."""
    inner = f"{sys.executable} -m diskproof monitor -c -q --json - 0.05"
    done = diskproof("monitor", "--module", inner, "-q", "--json", "-", "0.1", "60", cwd=tmp_path)
    header, *samples = [json.loads(line) for line in done.text.splitlines()]
    names = [column["name"] for column in header["columns"]]
    assert any(name.endswith(".cpu.user") for name in names)
    assert any(value is not None for value in samples[-1]["values"][:-1])


@NEEDS_CHROMIUM
def test_the_page_in_a_browser_of_a_phone_and_a_desk(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "rec.jsonl").write_bytes(make_json(40))
    asked = ["--from", "rec.jsonl", "--html", "out.html"]
    assert diskproof("monitor", *asked, cwd=tmp_path).returncode == 0
    for width in (390, 1280):
        browser.load(tmp_path / "out.html", width=width, height=20_000)
        assert browser.evaluate(DRAWN) == 13
        assert all(browser.evaluate(MARKS.replace("KIND", "live")))
        assert browser.evaluate(CUT) == [] and browser.evaluate(OUTSIDE) == []
        assert browser.complaints() == []
        assert [url for url in browser.requests() if not url.startswith("file:")] == []
    browser.load(tmp_path / "out.html", width=390, scripts=False)
    assert browser.complaints() == []
