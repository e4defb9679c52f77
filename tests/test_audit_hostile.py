"""Files of strangers through the verb: malformed, cut off, changed, hostile; an error at most."""

import contextlib
import io
import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.cli.app import run_verb
from support.commands import let_everybody_in

ROOT = Path(__file__).parent / "fixtures" / "machines"
MOST_SECONDS = 5.0
SAMPLES = sorted(
    path
    for path in ROOT.glob("*/*")
    if path.parent.name != "layers" and path.name != "expected.toml"
)
TOKENS = (b"<", b"&", b'"', b"'", b"{", b"[", b"]}", b"=", b",,", b"\0", b"\n", b"\xff", b"*x",
          b"&a ", b"-drive ", b"!!python/object", b"<!ENTITY a 'b'>", b"9" * 5000)  # fmt: skip
BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{}]><domain>&j;</domain>'.format(
    "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
)
LAUGHS = "apiVersion: kubevirt.io/v1\na: &a [x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n"
    for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "bomb.xml": BOMB,
    "external.xml": '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]><domain>&e;</domain>',
    "laughs.yaml": LAUGHS,
    "deep.json": '{"apiVersion":"kubevirt.io/v1","x":' + "[" * 100_000,
    "deep.xml": "<domain>" + "<a>" * 100_000,
    "deep.yaml": "apiVersion: kubevirt.io/v1\nx: " + "[" * 20_000,
    "deep.sh": "qemu-system-x86_64 -blockdev '" + '{"file":' * 20_000,
    "long.sh": "qemu-system-x86_64 -drive " + "file=," * 300_000,
    "quote.sh": "qemu-system-x86_64 -drive 'file=",
    "many.sh": "qemu-system-x86_64 -m 1 " + "-drive file=a,if=virtio " * 20_000,
    "many.conf": "scsi0: local:a,cache=unsafe\n" * 50_000,
    "empty": "",
    "blank.conf": "\n" * 100_000,
    "object.yaml": "apiVersion: kubevirt.io/v1\nx: !!python/object/apply:os.system ['true']\n",
}


def run_audit(path: Path) -> tuple[int, str, float]:
    """Exit code, all that was printed and the seconds of processor time that it took."""
    out, err = io.StringIO(), io.StringIO()
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_verb(["audit", str(path)])
    return code, out.getvalue() + err.getvalue(), time.process_time() - began


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_an_error_and_soon(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    code, told, seconds = run_audit(path)
    assert code in (0, 1, 2) and "Traceback" not in told
    assert "root:x:0" not in told
    assert seconds < MOST_SECONDS


def change(data: bytes, rng: random.Random) -> bytes:
    """Cut off, a piece doubled, removed or replaced, a token put in."""
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.randrange(40))
        way = rng.randrange(5)
        if way == 0:
            data = data[:at]
        elif way == 1:
            data = data[:end] + data[at:end] + data[end:]
        elif way == 2:
            data = data[:at] + data[end:]
        elif way == 3:
            data = data[:at] + rng.choice(TOKENS) + data[at:]
        else:
            data = data[:at] + rng.randbytes(end - at) + data[end:]
    return data


@settings(max_examples=120, deadline=None)
@given(sample=st.sampled_from(SAMPLES), seed=st.integers(0, 2**32))
def test_a_changed_configuration_is_judged_or_refused(
    tmp_path_factory: pytest.TempPathFactory, sample: Path, seed: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"changed{sample.suffix}"
    path.write_bytes(change(sample.read_bytes(), random.Random(seed)))
    code, told, seconds = run_audit(path)
    assert code in (0, 1, 2), told
    assert seconds < MOST_SECONDS


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large.xml"
    large.write_bytes(b"<domain>" + bytes(5 << 20))
    for path in (pipe, Path("/dev/zero"), tmp_path, large, tmp_path / "none"):
        code, told, seconds = run_audit(path)
        assert code == 2 and seconds < MOST_SECONDS, told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("scsi0: local:a\n")
    path.chmod(0o600)
    let_everybody_in(tmp_path)
    os.seteuid(65534)
    try:
        code, told, _ = run_audit(path)
    finally:
        os.seteuid(0)
    assert code == 2 and "Permission denied" in told
