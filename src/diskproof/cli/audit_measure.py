"""``audit --measure``: a machine's own settings against the best alternatives, measured."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from diskproof.advice.judge import in_force
from diskproof.advice.own_study import own_levels, render_study, study_name
from diskproof.backings import NO_CONSENT
from diskproof.cli.conduct import Order, conduct_alone
from diskproof.cli.crash import start_crashing
from diskproof.cli.measure import MeasureWords, start_measuring
from diskproof.cli.terminal import console, note, print_json
from diskproof.errors import DiskproofError, Exit, UsageError
from diskproof.measure.next import MeasureCampaign
from diskproof.process.host_lock import start_alone
from diskproof.recording.folder import require_fuse
from diskproof.records.virtual_machines import DiskJudgement, MachineJudgement
from diskproof.report import layout
from diskproof.report.advice.own_settings import compare_own
from diskproof.report.read import read_views
from diskproof.store import Store
from diskproof.study.crash import longest_seconds
from diskproof.study.load import Study, parse_study

SHORT_SECONDS = 300.0
"""Verdicts are made before the speeds where that takes no longer, and the budget has room."""


@dataclass(frozen=True)
class OwnStudy:
    """A study of a disk's settings, and the levels of its own cell."""

    study: Study
    own: dict[str, str]
    file: Path


def measure_machines(order: Order, judged: Sequence[MachineJudgement]) -> int:
    """Measure every kind of disk that was found, one study each. Raises UsageError where there is
    none that can be measured."""
    studies = list(find_studies(judged))
    if not studies:
        why = "only disks that are image files here, with known settings, can be"
        raise UsageError("no disk that could be measured was found", why)
    with start_alone(order.wait, note):
        codes = [_measure(order, each) for each in studies]
    short = any(disk.falls_short for each in judged for disk in each.disks)
    return max([*codes, Exit.FELL_SHORT if short else Exit.OK])


def find_studies(judged: Sequence[MachineJudgement]) -> Iterator[OwnStudy]:
    """A study a disk; disks with the same settings in the same folder are one."""
    seen: set[tuple[object, ...]] = set()
    for machine in judged:
        for disk in machine.disks:
            name = f"{machine.machine.name} {disk.disk.name}"
            try:
                own, folder = own_levels(in_force(disk.disk)), _require_folder(disk)
            except ValueError as error:
                note(f"{name} is not measured: {error}")
                continue
            key = (folder, *sorted(own.items()))
            if key not in seen:
                seen.add(key)
                named = study_name(machine.machine.name, disk.disk.name)
                text = render_study(named, str(folder), own)
                yield OwnStudy(parse_study(text, f"{named}.toml"), own, Path(f"{named}.toml"))


def _require_folder(judged: DiskJudgement) -> Path:
    """Where its image lies. Raises ValueError: a device or a server's disk could only be written
    over."""
    disk = judged.disk
    if disk.read_only:
        raise ValueError("it is read-only")
    image = Path(disk.image)
    if disk.kind not in ("file", "") or not image.is_absolute() or not image.is_file():
        raise ValueError("its image is no file here, and it must not be written over")
    return image.parent


def _measure(order: Order, each: OwnStudy) -> int:
    """Speeds, and verdicts before them where those are quickly made; the study's file is left for
    more of it."""
    try:
        with each.file.open("x", encoding="utf-8") as stream:
            stream.write(each.study.text)
    except FileExistsError:
        if each.file.read_text(encoding="utf-8", errors="replace") != each.study.text:
            raise UsageError(
                f"{each.file} is there already, and says something else", "", "move it away"
            ) from None
    except OSError as error:
        raise UsageError(f"{each.file} cannot be written", error.strerror or "") from None
    folder = dict(each.study.backings[0].options)["path"]
    note(f"{each.file}: new images in {folder} are written and removed, no other one is touched")
    if _is_short(each.study) and (order.budget is None or order.budget > 2 * SHORT_SECONDS):
        conduct_alone(order, partial(start_crashing, each.study, NO_CONSENT, None))
    return conduct_alone(order, partial(_start_comparison, each))


def _is_short(study: Study) -> bool:
    """Whether verdicts of all cells take minutes at most, and can be made here."""
    rules = study.crash
    cells = len(study.only) or 1
    one = longest_seconds("guest", rules.seconds, rules.explore_seconds, len(rules.faults))
    try:
        require_fuse()
    except DiskproofError:
        return False
    return cells * one <= SHORT_SECONDS


@contextmanager
def _start_comparison(each: OwnStudy, store: Store) -> Iterator[MeasureWords]:
    with start_measuring(each.study, NO_CONSENT, store) as words:
        yield ComparisonWords(words.campaign, each)


class ComparisonWords(MeasureWords):
    """It ends with sentences: the own settings against the best that keeps."""

    def __init__(self, campaign: MeasureCampaign, own: OwnStudy) -> None:
        super().__init__(campaign)
        self._own = own

    def print_results(self, as_json: bool) -> None:
        views = read_views(self.campaign.store, [self.campaign.study.id])
        told = [line for view in views for line in compare_own(view, self._own.own)]
        told.append(f"Everything of it: diskproof rank --study {self._own.study.name}")
        if as_json:
            print_json({"study": self._own.study.name, "own": self._own.own, "told": told})
        else:
            console().print(layout.paragraphs([[layout.line(line) for line in told]]))
