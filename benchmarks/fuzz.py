"""Every reader of foreign bytes in native/ given inputs that coverage chooses (libFuzzer): none may
panic, hang or take more than 512 MiB.

``fuzz.py [SECONDS] [--keep] [NAME ...]`` prints what each was given; 1 if something was found, and
where the input is. With ``--keep``, inputs that reach new code become part of the fixed corpus that
``cargo test`` replays (``native/**/__fuzz__``). Needs g++, for libFuzzer.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"
MOST_MIB = 512
MOST_SECONDS = 10  # of one input
# As bolero's own runner has them: counters of branches, and what is compared with what. Programs
# without a target are linked, too, and have no libFuzzer that would count; nobody starts them.
FLAGS = """--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
    -Clink-arg=-Wl,--unresolved-symbols=ignore-all"""
TARGET = re.compile(
    r'fn (\w+)\(\) \{(?:(?!\bfn ).)*?bolero::check!\(name = "([\w-]+)"\)', re.DOTALL
)


@dataclass(frozen=True)
class Target:
    """One test that is a fuzz target: its program, its path in there, its folder."""

    name: str
    program: Path
    test: str
    folder: Path

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        env = {
            "BOLERO_LIBTEST_HARNESS": "1",
            "BOLERO_TEST_NAME": self.test,
            "BOLERO_LIBFUZZER_ARGS": " ".join(map(str, arguments)),
        }
        argv = [self.program, self.test, "--exact", "--nocapture", "--quiet", "--test-threads=1"]
        return subprocess.run(
            argv,
            env=os.environ | env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )


def build() -> list[Path]:
    """The test programs of all packages that have targets, instrumented and quick."""
    manifests = [path for path in NATIVE.glob("*/*/Cargo.toml") if "bolero" in path.read_text()]
    packages = [f"--package=diskproof-{package_name(path)}" for path in manifests]
    host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True))
    assert host
    profile = ["opt-level=3", "codegen-units=1", "incremental=false"]
    argv = [
        NATIVE / "../setup/cargo",
        "test",
        "--no-run",
        "--locked",
        "--message-format=json-render-diagnostics",
    ]
    argv += [f"--target={host[1]}", f"--target-dir={target_folder()}", *packages]
    argv += [f"--config=profile.dev.{line}" for line in profile]
    env = {"RUSTFLAGS": " ".join(FLAGS.split()), "BOLERO_FUZZER": "libfuzzer"}
    env |= {"CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER": ""}  # no static linking: libFuzzer is C++
    told = subprocess.run(argv, cwd=NATIVE, env=os.environ | env, stdout=subprocess.PIPE)
    if told.returncode:
        sys.exit("the targets cannot be built; with g++ missing: apt-get install g++")
    messages = map(json.loads, told.stdout.splitlines())
    return [Path(message["executable"]) for message in messages if message.get("executable")]


def target_folder() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", NATIVE / "target")) / "fuzz"


def package_name(manifest: Path) -> str:
    found = re.search(r'^name = "diskproof-([\w-]+)"', manifest.read_text(), re.MULTILINE)
    assert found
    return found[1]


def find_targets(programs: list[Path]) -> Iterator[Target]:
    """A target's name is in its source; its path as a test is what its program lists."""
    folders = {
        (function, name): source.parent / "__fuzz__" / name
        for source in NATIVE.glob("*/*/*/**/*.rs")
        for function, name in TARGET.findall(source.read_text())
    }
    listed = [(program, line) for program in programs for line in list_tests(program)]
    for (function, name), folder in folders.items():
        ours = [(exe, test) for exe, test in listed if test.rpartition("::")[2] == function]
        assert len(ours) == 1, f"{name}: {function} is the name of {len(ours)} tests"
        yield Target(name, *ours[0], folder)


def list_tests(program: Path) -> list[str]:
    """The tests of a program; none of one without libFuzzer, which cannot even begin."""
    done = subprocess.run([program, "--list"], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return [line.removesuffix(": test") for line in lines if line.endswith(": test")]


def fuzz(target: Target, seconds: int, keep: bool) -> bool:
    """Prints a line; False when something was found."""
    corpus, found = target.folder / "corpus", target_folder() / "inputs" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    crashes = target_folder() / "crashes" / target.name
    crashes.mkdir(parents=True, exist_ok=True)
    told = target.run(
        *(found, corpus, f"-max_total_time={seconds}", f"-timeout={MOST_SECONDS}"),
        *(f"-rss_limit_mb={MOST_MIB}", f"-artifact_prefix={crashes}/", "-print_final_stats=1"),
    ).stderr
    stats = {name: int(value) for name, value in re.findall(r"stat::(\w+): +(\d+)", told)}
    covered = re.findall(r"cov: (\d+) ft: (\d+)", told)[-1:] or [("?", "?")]
    sound = bool(stats) and not re.search(r"SUMMARY: libFuzzer|test failed", told)
    print(
        f"{target.name:16} {stats.get('number_of_executed_units', 0):12,} inputs {seconds:5} s "
        f"{stats.get('peak_rss_mb', 0):5} MiB  {covered[0][0]:>5} edges  "
        f"{'nothing found' if sound else f'FOUND, see {crashes}'}",
        flush=True,
    )
    if not sound:
        print(told[-3000:])
    elif keep:
        choose(target, corpus, found)
    return sound


def choose(target: Target, corpus: Path, found: Path) -> None:
    """The fewest inputs that reach all branches that any of them reaches become the corpus."""
    fresh = target.folder / "chosen"
    fresh.mkdir()
    target.run("-set_cover_merge=1", "-use_counters=0", fresh, corpus, found)
    if any(fresh.iterdir()):
        shutil.rmtree(corpus)
        fresh.rename(corpus)
    else:
        fresh.rmdir()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=int, nargs="?", default=60, help="for each (60)")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--keep", action="store_true", help="what is new joins the fixed corpus")
    wish = parser.parse_args()
    targets = [one for one in find_targets(build()) if not wish.names or one.name in wish.names]
    sound = [fuzz(target, wish.seconds, wish.keep) for target in targets]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
