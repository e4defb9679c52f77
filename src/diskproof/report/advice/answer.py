"""The whole answer in a manager's words: the line to paste, what it holds for, what it lacks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.records.virtual_machines import Levels
from diskproof.report import layout
from diskproof.report.advice.choose import (
    Candidate,
    Recommendation,
    Wish,
    disk_levels,
    recommend_all,
    settle,
)
from diskproof.report.advice.conditions import find_conditions
from diskproof.report.advice.words import (
    answer_sentences,
    faster_sentence,
    keeping_sentence,
    next_sentences,
    settings_text,
    tie_sentence,
    use_sentence,
)
from diskproof.report.durability import durability_json
from diskproof.report.labels import finite, interval_json
from diskproof.report.output_answers import AdviceJson, AnswerJson, CandidateJson
from diskproof.report.view import StudyView
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME
from diskproof.study.like import OF_DEVICES

_OF_CELL = ("verdict", "writer", "speed", "tied with")
"""Conditions that hold for a measured cell and for no other."""


@dataclass(frozen=True)
class Answer:
    """``paste`` is None without a cell to advise. ``unsaid`` would have been chosen, if the dialect
    could say it. Where it can say no cell at all, ``paste`` is the nearest to that one, and
    ``instead`` the levels that nobody measured."""

    view: StudyView
    found: Recommendation
    dialect: Dialect
    paste: Paste | None
    unsaid: Candidate | None
    conditions: tuple[tuple[str, str], ...]
    instead: Levels = field(default_factory=dict)

    @property
    def keeps(self) -> bool:
        return self.found.keeps and not self.instead


def ask_in(wish: Wish, dialect: Dialect, target: Target) -> Wish:
    """The same of a manager: what a new disk gets there, and what cannot be said of one."""
    return replace(
        wish,
        stack=dialect.title.partition(" (")[0],
        defaults=dialect.defaults(target),
        find_obstacles=lambda levels: _find_gaps(levels, target, dialect),
    )


def find_answers(
    view: StudyView,
    wish: Wish,
    dialect: Dialect,
    target: Target,
    workload: str = "",
    filesystems: Mapping[str, str] | None = None,
) -> tuple[Answer, ...]:
    """An answer a workload, or on one of them; the same disk for all where one would do.
    ``filesystems`` are those that backings are on, by name, as far as somebody looked."""
    asked = ask_in(wish, dialect, target)
    if workload:
        loads = tuple(load for load in view.workloads if load.name == workload)
        view = replace(view, workloads=loads)
    unbound = replace(asked, find_obstacles=Wish().find_obstacles)
    free = {each.load.name: each for each in recommend_all(view, unbound)}
    return tuple(
        _make_answer(view, found, free[found.load.name], dialect, target, filesystems or {})
        for found in settle(view, asked)
    )


def _make_answer(
    view: StudyView,
    found: Recommendation,
    free: Recommendation,
    dialect: Dialect,
    target: Target,
    filesystems: Mapping[str, str],
) -> Answer:
    """``free`` is the answer of who could say everything."""
    unsaid = _unsaid(found, free, target, dialect)
    levels = _meant(disk_levels(found.chosen.cell) if found.chosen else {}, target)
    instead: Levels = {}
    if unsaid and not found.chosen:
        levels, instead = _nearest(unsaid, free.wish, target, dialect)
    paste = dialect.write(_as_new(levels, target, dialect), target) if levels else None
    of = free if instead else found
    conditions = (*_of_target(target), *find_conditions(of, view, filesystems)) if paste else ()
    if instead:
        of_cell = tuple((name, f"of what was measured: {value}" if name in _OF_CELL else value)
                        for name, value in conditions)  # fmt: skip
        conditions = (("not measured", _levels_text(instead)), *of_cell)
    return Answer(view, found, dialect, paste, unsaid, conditions, instead)


def _as_new(levels: Levels, target: Target, dialect: Dialect) -> Levels:
    """With what this manager gives the device of a new disk, where the cell says nothing of it and
    its bus can have it; on the device of a disk that is there nothing is changed."""
    given = {} if target.existing else dialect.defaults(target)
    whole = {**{name: given[name] for name in OF_DEVICES if name in given}, **levels}
    return levels if dialect.find_obstacles(whole, target) else whole


def _unsaid(
    found: Recommendation, free: Recommendation, target: Target, dialect: Dialect
) -> Candidate | None:
    """The cell that the dialect kept from being chosen."""
    best = free.chosen
    if best is None or (found.chosen and found.chosen.cell == best.cell):
        return None
    obstacles = _find_gaps(disk_levels(best.cell), target, dialect)
    return replace(best, unsayable=obstacles) if obstacles else None


def _nearest(
    best: Candidate, wish: Wish, target: Target, dialect: Dialect
) -> tuple[Levels, Levels]:
    """The nearest levels that can be said, and those that are not the cell's; none where that
    would not be allowed either."""
    levels, instead = dict(_meant(disk_levels(best.cell), target)), dict[str, str]()
    for _ in range(len(levels)):
        gaps = _find_gaps(levels, target, dialect)
        if not gaps:
            mode = CACHE_MODES[levels.get("cache", "none")]
            allowed = not mode.no_flush and (mode.direct or not wish.migrates)
            return (levels, instead) if allowed else ({}, {})
        for gap in gaps:
            if not gap.nearest or gap.factor not in levels:
                return {}, {}
            instead[gap.factor] = levels[gap.factor] = gap.nearest
    return {}, {}


def _levels_text(levels: Levels) -> str:
    return ", ".join(f"{name}={level}" for name, level in levels.items())


def _find_gaps(levels: Levels, target: Target, dialect: Dialect) -> tuple[Unsayable, ...]:
    """What the dialect cannot say of a disk, and what the image that is there rules out: a line
    that calls a qcow2 image raw would show the guest its inside."""
    there, form = _format_there(target, dialect), levels.get("format", "")
    gaps = dialect.find_obstacles(_meant(levels, target), target)
    if not form or there in ("", form):
        return gaps
    return (Unsayable("format", form, f"the image that is there is {there}", there), *gaps)


def _format_there(target: Target, dialect: Dialect) -> str:
    """The format of the disk as it was found, or that its name tells; empty where nobody knows."""
    if target.existing:
        return dialect.read(target.existing, target).get("format", "")
    ending = target.image.rpartition(".")[2]
    return ending if ending in FACTOR_BY_NAME["format"].levels else ""


def _is_remote(target: Target) -> bool:
    """Whether a client of QEMU's own (librbd, NBD) reaches the disk."""
    return target.image.startswith("rbd:") or "://" in target.image


def _meant(levels: Levels, target: Target) -> Levels:
    """Without what means nothing to such a disk: how QEMU reads a file."""
    if not _is_remote(target):
        return levels
    known = ((name, level, FACTOR_BY_NAME.get(name)) for name, level in levels.items())
    return {name: level for name, level, factor in known if factor is None or factor.over_network}


def _of_target(target: Target) -> tuple[tuple[str, str], ...]:
    """Such a client has caches that no verdict here is about."""
    if not _is_remote(target):
        return ()
    what = "the disk is reached over a network: cache means its client's cache there, and verdicts"
    return (("elsewhere", f"{what} about files do not carry over"),)


def unsaid_sentence(answer: Answer) -> str:
    """What would have been chosen, why it cannot be said, and the nearest that can."""
    each, title = answer.unsaid, answer.dialect.title
    if each is None:
        return ""
    reasons = "; ".join(
        f"{gap.factor}={gap.level} cannot be said ({gap.reason})"
        + (f", the nearest is {gap.factor}={gap.nearest}" if gap.nearest else "")
        for gap in each.unsayable
    )
    taken = ""
    if answer.found.chosen:
        taken = "; the best that can be said is taken"
    elif answer.instead:
        taken = "; no cell that was measured can be said, so this line is the nearest"
    return f"{title} cannot have {settings_text(each, answer.found)}: {reasons}{taken}."


def instead_sentence(answer: Answer) -> str:
    """That nobody knows what the nearest line keeps, and how to know."""
    if not answer.instead:
        return ""
    told, file = _levels_text(answer.instead), answer.found.wish.file or "the study"
    return (
        f"With {told} nobody has measured or judged it, so what it keeps is not known; "
        f"with that under [factors] of {file} `diskproof run` and `diskproof crash` tell."
    )


def opening_lines(answer: Answer) -> list[str]:
    """The sentences that stand before the line to paste."""
    found = answer.found
    if found.chosen is None:
        nothing = answer_sentences(found) if answer.paste is None else ()
        return [*nothing, *filter(None, [unsaid_sentence(answer), instead_sentence(answer)])]
    told = (
        use_sentence(found),
        keeping_sentence(found.chosen, found),
        tie_sentence(found),
        unsaid_sentence(answer),
    )
    return [text for text in told if text]


def closing_lines(answer: Answer) -> list[str]:
    """Those that stand after it: the next faster one, and what makes the answer surer."""
    if answer.found.chosen is None:
        return []
    told = [faster_sentence(answer.found), *next_sentences(answer.found)]
    return [text for text in told if text]


def by_paste(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Answers with the same line together."""
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.paste.text if answer.paste else "", []).append(answer)
    return list(found.values())


def render_opening(answers: Sequence[Answer]) -> layout.Shown:
    """What to use and why, and where the line goes; the line itself follows, unwrapped."""
    texts = merge_texts([(answer, text) for answer in answers for text in opening_lines(answer)])
    paste, parts = answers[0].paste, [layout.line(text) for text in texts]
    if paste is None:
        return layout.paragraphs([parts])
    where = layout.line(f"{answers[0].dialect.title}: {paste.where}", "bold")
    return layout.paragraphs([parts, [where]])


def render_rest(answers: Sequence[Answer], conditions: bool = True) -> layout.Shown:
    """What stands after the line that these answers share, with all ``conditions`` or without."""
    paste = answers[0].paste
    if paste is None:
        return layout.paragraphs([])
    notes = [f"It takes effect {paste.takes_effect}." if paste.takes_effect else "", *paste.notes]
    closing = merge_texts(
        [
            (answer, f"{answer.found.load.name}: {text}" if len(answers) > 1 else text)
            for answer in answers
            for text in closing_lines(answer)
        ]
    )
    return layout.paragraphs(
        [
            [layout.line(text) for text in notes if text],
            [_conditions_table(answers)] if conditions else [],
            [layout.line(text) for text in closing],
        ]
    )


def merge_texts(told: Sequence[tuple[Answer, str]]) -> list[str]:
    """Sentences that differ by the name of their workload alone are one, of all those workloads."""
    loads: dict[str, list[str]] = {}
    for answer, text in told:
        name = answer.found.load.name
        loads.setdefault(text.replace(name, "\0", 1), []).append(name)
    every = len({answer.found.load.name for answer, _ in told})
    merged = []
    for text, names in loads.items():
        said = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        whole = len(names) == every > 1 and text.startswith("\0: ")
        merged.append(text.removeprefix("\0: ") if whole else text.replace("\0", said))
    return merged


def _conditions_table(answers: Sequence[Answer]) -> layout.PlainTable:
    """What is the same for all answers once, the rest by workload."""
    table = layout.start_table("It holds for", "!", "-")
    table.show_header = False
    for name in dict.fromkeys(name for answer in answers for name, _ in answer.conditions):
        told = {answer.found.load.name: dict(answer.conditions).get(name) for answer in answers}
        if len(set(told.values())) == 1:
            table.add_row(name, next(iter(told.values())))
            continue
        for load, value in told.items():
            if value:
                table.add_row(name, value if name == "workload" else f"{load}: {value}")
    return table


def answers_json(view: StudyView, answers: Sequence[Answer]) -> AdviceJson:
    """All of it for programs."""
    return {
        "study": view.study.name,
        "id": view.study.id,
        "host": view.host.name,
        "answers": [_answer_json(each) for each in answers],
    }


def _answer_json(answer: Answer) -> AnswerJson:
    found, paste = answer.found, answer.paste
    return {
        "workload": found.load.name,
        "metric": found.load.metric,
        "unit": found.load.unit,
        "for": answer.dialect.name,
        "keep": found.wish.keep,
        "migrates": found.wish.migrates,
        "disposable": found.wish.disposable,
        "sentences": list(answer_sentences(found)),
        "proved": found.proved and not found.is_likely,
        "likely": found.proved and found.is_likely,
        "keeps": answer.keeps,
        "instead": dict(answer.instead),
        "is_default": found.is_default,
        "default_measured": found.default is not None,
        "chosen": _candidate_json(found.chosen, found) if found.chosen else None,
        "beside": _candidate_json(found.beside, found) if found.beside else None,
        "ties": [_candidate_json(each, found) for each in found.ties],
        "faster": [_candidate_json(each, found) for each in found.faster],
        "refused": [_candidate_json(each, found) for each in found.refused],
        "unsaid": _candidate_json(answer.unsaid, found) if answer.unsaid else None,
        "paste": None
        if paste is None
        else {
            "text": paste.text,
            "where": paste.where,
            "takes_effect": paste.takes_effect,
            "create": paste.create,
            "notes": list(paste.notes),
        },
        "conditions": dict(answer.conditions),
        "judge_seconds": found.judge_seconds,
        "source": answer.dialect.source,
    }


def _candidate_json(each: Candidate, found: Recommendation) -> CandidateJson:
    ranked = each.line.ranked
    return {
        "cell": each.cell.levels_dict(),
        "settings": settings_text(each, found),
        "n": ranked.interval.n,
        "mean": ranked.interval.mean,
        "ci95": ranked.interval.half_width,
        "times_of_chosen": finite(each.times.ratio),
        "times_simultaneous95": interval_json(each.times.low, each.times.high),
        "told_apart": each.is_apart,
        "keeping": each.keeping.word,
        "fault": each.keeping.fault,
        "rules": [bar.rule for bar in each.keeping.bars],
        "against": [{"why": why, "what": what} for why, what in each.against],
        "unsayable": [asdict(gap) for gap in each.unsayable],
        "durability": durability_json(each.line.durability),
    }
