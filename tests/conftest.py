"""Settings for every test."""

import gc
import os
import resource
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from support.forked import stop_forker
from support.leftovers import end_children, find_children
from support.spreading import FilesAndParts

# A busy machine is not a defect: no example fails for being slow. The same tree gives the same
# inputs, so that a red run is about its change; "make properties" looks for new ones.
settings.register_profile("diskproof", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("diskproof")

# Children that tests start find what tests share, as pytest lets the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesAndParts | None:
    return FilesAndParts(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays: no search for garbage goes through it again."""
    gc.collect()
    gc.freeze()


# Parallel test runs set it, and our tables would be as narrow.
os.environ.pop("COLUMNS", None)

# One measurement at a time on a host: parallel test runs are as hosts of their own.
_HOST_LOCK = tempfile.NamedTemporaryFile(prefix="diskproof-tests-lock-")  # noqa: SIM115
Path(_HOST_LOCK.name).chmod(0o644)
os.environ["DISKPROOF_LOCK"] = _HOST_LOCK.name

# Started in the background of a script, we inherit that Ctrl-C is ignored; our children must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup a hangup: with a handler of ours it still does nothing here, and ends a child.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a test leaves in the spool is no business of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="module")
def forker() -> Iterator[None]:
    """Calls of one module fork from one process, which the next would take for left behind."""
    yield
    stop_forker()


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def leftovers(request: pytest.FixtureRequest) -> Iterator[None]:
    before = find_children()
    yield
    if request.node.stash.get(_FAILED, False):
        end_children(but=before)


_NO_WALL = resource.getrlimit(resource.RLIMIT_DATA)


@pytest.fixture(autouse=True)
def wall() -> Iterator[None]:
    """A verb that reads builds its wall of memory around its process, which is ours in a test; a
    fixture of a whole module may have called one before the test begins."""
    resource.setrlimit(resource.RLIMIT_DATA, _NO_WALL)
    yield
    resource.setrlimit(resource.RLIMIT_DATA, _NO_WALL)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may look into."""
    with tempfile.TemporaryDirectory(prefix="public-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def public_file(public: Path) -> Path:
    """A file that every user may read and write, in a folder that every user may search."""
    path = public / "file"
    path.write_bytes(b"theirs")
    path.chmod(0o666)
    return path
