"""What it takes to judge the cells of a study that nobody has judged."""

import tomllib

from diskproof.report.durability import deciding_levels
from diskproof.report.view import StudyView, WorkloadView
from diskproof.study import keys
from diskproof.study.crash import WRITERS, CrashRules, faults_of, longest_seconds, read_crash


def judging_seconds(view: StudyView, load: WorkloadView) -> float:
    """How long ``crash`` on the study takes at most, in seconds: for its cells without a verdict,
    by its own rules."""
    rules = _read_rules(view.study.text)
    judged = {deciding_levels(each.ranked.cell) for each in load.lines if each.durability}
    stacks = {cell.levels: cell for cell in view.study.cells}.values()
    return sum(
        longest_seconds(
            frontend, rules.seconds, rules.explore_seconds, len(faults_of(frontend, rules.faults))
        )
        for cell in stacks
        if deciding_levels(cell) not in judged
        for writer in rules.writers
        if (frontend := cell.level("frontend")) in WRITERS[writer]
    )


def _read_rules(text: str) -> CrashRules:
    """``[crash]`` of a study's text; the defaults where there is none."""
    try:
        content = tomllib.loads(text).get("crash", {})
    except (ValueError, RecursionError):
        content = {}
    mistakes = keys.Mistakes(text, "")
    rules = read_crash(content, mistakes)
    return CrashRules() if mistakes.found else rules
