"""The answer in two or three sentences, as one storage administrator would say it to another."""

from collections.abc import Collection

from diskproof.records.metrics import figure_unit
from diskproof.records.verdicts import Fault
from diskproof.report.advice.choose import NOT_SAID, Candidate, Recommendation, disk_levels
from diskproof.report.durability import (
    find_whole_search,
    loss_text,
    shared_text,
    states_checked,
    states_text,
)
from diskproof.report.labels import count, render_figure
from diskproof.units import render_seconds

MAX_NAMED = 2
CUTS: dict[Fault, str] = {
    "power": "a power cut",
    "qemu-kill": "the end of QEMU",
    "guest-kill": "the end of the guest",
    "lying-device": "a power cut with a disk that lies",
    "old-content": "a power cut that leaves old content in new files",
    "power-ext4": "a power cut by the rules of ext4",
    "power-ext4-journal": "a power cut by the rules of ext4 with data=journal",
    "power-ext4-writeback": "a power cut by the rules of ext4 with data=writeback",
    "power-xfs": "a power cut by the rules of XFS",
    "power-btrfs": "a power cut by the rules of btrfs",
    "power-f2fs": "a power cut by the rules of f2fs",
    "power-f2fs-unwaited": "a power cut by f2fs of Linux, which may not wait for fsync",
}


def answer_sentences(found: Recommendation) -> tuple[str, ...]:
    """What to use and what it gains, what it keeps, what could not be told apart, what to do next;
    each in a sentence or two, and none where there is nothing to say."""
    if found.chosen is None:
        return (_nothing_sentence(found), *next_sentences(found))
    told = (
        use_sentence(found),
        keeping_sentence(found.chosen, found),
        tie_sentence(found),
        faster_sentence(found),
        *next_sentences(found),
    )
    return tuple(filter(None, told))


def settings_text(each: Candidate, found: Recommendation) -> str:
    """The settings that a cell has and others have not: ``cache=none, aio=native``; the backing
    where that varies too. All of them where nothing varies."""
    return _say(each, found.load.varying) or _say(each, ("format", "cache", "aio", "bus"))


def _say(each: Candidate, factors: Collection[str]) -> str:
    levels = disk_levels(each.cell)
    told = [f"{name}={level}" for name, level in levels.items() if name in factors]
    beside = [
        f"{'on backing' if name == 'backing' else name} {each.cell.level(name)}"
        for name in sorted(NOT_SAID - {"frontend", "accel"})
        if name in factors and each.cell.level(name)
    ]
    return ", ".join([*told, *beside])


def differs_text(each: Candidate, found: Recommendation) -> str:
    """Those of its settings that the chosen cell has not; all where that is most of them."""
    if found.chosen is None:
        return settings_text(each, found)
    own = set(found.chosen.cell.levels)
    other = [name for name, level in each.cell.levels if (name, level) not in own]
    return _say(each, [name for name in other if name in found.load.varying]) or settings_text(
        each, found
    )


def use_sentence(found: Recommendation) -> str:
    """What to use, and what it gains."""
    chosen, load = found.chosen, found.load
    assert chosen is not None
    settings, value = settings_text(chosen, found), chosen.line.ranked.interval.mean
    figure = f"{render_figure(value)} {figure_unit(load.metric, load.unit)}"
    if not found.proved:
        return _no_winner_sentence(found, settings)
    beside = found.beside
    gain = ""
    if beside and beside.is_apart:
        name = f"with {differs_text(beside, found)}, the next that would do"
        if beside is found.default:
            name = f"what {found.wish.stack} gives a new disk ({differs_text(beside, found)})"
        gain = f", {beside.times.inverse.text} as fast as {name}"
    stays = f", which is what {found.wish.stack} does by itself" if found.is_default else ""
    sure = ""
    if found.is_likely and found.race:
        sure = f"; likely ({100 * found.race.rules.confidence:g} % or more), not proved"
    return f"For {load.name} use {settings}{stays}: {figure}{gain}{sure}."


def _no_winner_sentence(found: Recommendation, settings: str) -> str:
    stack, load = found.wish.stack, found.load.name
    if not found.ties:
        which = "that is proved to keep" if found.keeps else "that may be advised"
        return f"For {load} use {settings}, the only one {which}."
    sure = "likely enough" if found.is_likely else "proved"
    said = f"For {load} no difference is {sure} between {count(len(found.ties) + 1, 'cell')}"
    if found.is_default:
        return f"{said}: stay with what {stack} gives a new disk, {settings}."
    if found.default in found.ties:
        return f"{said}, what {stack} gives a new disk among them: {settings} does for this, too."
    if found.default is None:
        return (
            f"{said}: nothing speaks for leaving what {stack} gives a new disk, which was not "
            f"measured; the nearest to it is {settings}."
        )
    return (
        f"{said}; what {stack} gives a new disk is not among them "
        f"({found.default.why_not or keeping_text(found.default)}), and the nearest to it is "
        f"{settings}."
    )


def keeping_sentence(each: Candidate, found: Recommendation) -> str:
    """What the cell that is advised keeps."""
    keeping = each.keeping
    cut = CUTS[keeping.fault]
    if keeping.row and keeping.is_proved:
        states = states_checked(keeping.row.verdict)
        return f"It kept every acknowledged write in {cut}: {states}."
    if keeping.row and keeping.row.verdict.kept_so_far:
        verdict = keeping.row.verdict
        few = states_checked(verdict)
        return f"So far it kept every acknowledged write in {cut}, but too few to say so: {few}."
    if keeping.is_open:
        why = keeping.row.verdict.reason if keeping.row else "nobody has judged it yet"
        return f"Whether it keeps acknowledged writes in {cut} is not known: {why}."
    return f"It is not safe: it {keeping_text(each)}."


def keeping_text(each: Candidate) -> str:
    """What is known of a cell's data, after "it"."""
    keeping = each.keeping
    cut = CUTS[keeping.fault]
    rules = "; ".join(bar.what for bar in keeping.bars)
    if keeping.row and keeping.word in ("loses", "corrupts"):
        return f"{loss_text(keeping.row.verdict)} in {cut}"
    if rules:
        return rules
    if keeping.row and keeping.is_proved:
        return f"keeps in {cut}, {states_text(keeping.row.verdict)} states checked"
    if keeping.row is None:
        return "is not judged yet"
    said = shared_text(keeping.row.verdict)
    return f"{said} in {cut}" if keeping.row.verdict.kept_so_far else f"is {said} in {cut}"


def tie_sentence(found: Recommendation) -> str:
    """What could have been chosen as well, and why this one."""
    if not found.proved or not found.ties:
        return ""
    names = [f"with {differs_text(each, found)}" for each in found.ties[:MAX_NAMED]]
    more = len(found.ties) - len(names)
    named = " or ".join([*names, *([f"in {count(more, 'other way')}"] if more else [])])
    return f"The same {named} could not be told apart from the best; {why_this(found)}."


def why_this(found: Recommendation) -> str:
    """Why this one of a tie."""
    chosen = found.chosen
    assert chosen is not None
    if found.is_default:
        return f"this one is what {found.wish.stack} does by itself"
    if any(each.keeping.word != chosen.keeping.word for each in found.ties):
        return "this one is the safest"
    stack = found.wish.stack
    gain = "likely" if found.is_likely else "proved"
    return f"of those with a {gain} gain this is the nearest to what {stack} does by itself"


def faster_sentence(found: Recommendation) -> str:
    """What the next faster one would gain and lose."""
    each = found.next_faster
    if each is None:
        return ""
    name, why = differs_text(each, found), reason_against(each, found)
    if not each.is_apart:
        sure = "likely" if found.is_likely else "proved"
        return f"With {name} it is not {sure} faster ({each.times.text}), and then it {why}."
    would = "would likely be" if found.is_likely else "would be"
    return f"With {name} it {would} {each.times.text} as fast, but then it {why}."


def reason_against(each: Candidate, found: Recommendation) -> str:
    """Why a faster cell is not the answer, after "it"."""
    if each.keeping.word in ("loses", "corrupts") or each.keeping.bars:
        return keeping_text(each)
    if each.against:
        return f"is not to be had here: {each.why_not}"
    return keeping_text(each)


def _nothing_sentence(found: Recommendation) -> str:
    load = found.load.name
    if not found.refused:
        return f"For {load} nothing was measured that a virtual machine could use as its disk."
    reasons = list(dict.fromkeys(text for each in found.refused for text in _reasons(each)))
    more = f"; and {len(reasons) - 4} more reasons" if len(reasons) > 4 else ""
    cells = count(len(found.refused), "cell")
    return f"For {load} none of {cells} can be advised: {'; '.join(reasons[:4])}{more}."


def _reasons(each: Candidate) -> list[str]:
    if each.keeping.word in ("loses", "corrupts") or each.keeping.bars:
        return [f"one {keeping_text(each)}"]
    return [text for _, text in each.against]


def next_sentences(found: Recommendation) -> tuple[str, ...]:
    """What to do to be surer; at most one sentence."""
    file = found.wish.file or "STUDY.toml"
    if found.chosen is None:
        return ()
    row = found.chosen.keeping.row
    if found.chosen.keeping.is_open and row and row.verdict.kept_so_far:
        minutes = find_whole_search(row.verdict)
        longer = f'explore_seconds = "{minutes}m"' if minutes else "a longer explore_seconds"
        then = f"under [crash] in {file}, then `diskproof crash {file}`"
        return (f"To know what it keeps: {longer} {then}.",)
    if found.chosen.keeping.is_open:
        return (
            f"To know: `diskproof crash {file}`, at most {render_seconds(found.judge_seconds)}.",
        )
    if found.next_faster and found.next_faster.keeping.is_open and not found.next_faster.against:
        seconds = render_seconds(found.judge_seconds)
        return (f"To know what that keeps: `diskproof crash {file}`, at most {seconds}.",)
    if found.race and not found.proved and found.faster:
        return (
            "To be surer: a race among what may be advised ([[exclude]] the others, cache=unsafe "
            f"say, in {file}); this one was stopped by cells that may not.",
        )
    if not found.proved and found.ties:
        return (f"To be surer: more blocks in {file}, then `diskproof run {file}` again.",)
    return ()
