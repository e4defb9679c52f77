"""The race of a workload: who left when, who leads, how sure that is."""

from collections.abc import Mapping

from diskproof.report import layout
from diskproof.report.chapter import Chapter, Draw, Source
from diskproof.report.race import words as race_words
from diskproof.report.race.chart import MAX_LANES, race_chart
from diskproof.report.view import StudyView
from diskproof.stats.study_race import RaceState, race_rules, replay_races
from diskproof.store.race_scores import race_scores


def _find(source: Source) -> Mapping[str, RaceState]:
    """Replayed from the study's runs; on however many hosts they were made, a race is one."""
    study, told = source.study, {load.name for load in source.workloads}
    if race_rules(study) is None:
        return {}
    races = replay_races(study, race_scores(source.store, study.id))
    return {race.workload: race for race in races if race.workload in told}


def _page(race: RaceState, view: StudyView, draw: Draw) -> Mapping[str, object]:
    study, figures = view.study, []
    if race.course.verdicts:
        caption = race_words.timeline_sentence(race, min(MAX_LANES, len(race.cells)))
        figures.append(draw(race_chart(race, study), caption, 1))
    drops = [race_words.drop_sentence(race, drop, study) for drop in race.course.drops]
    verdict = race_words.verdict_sentence(race, study)
    chances = race_words.chances_sentence(race)
    return {"verdict": verdict, "chances": chances, "figures": figures, "drops": drops}


def race_lines(race: RaceState, view: StudyView, best: int = 0) -> list[layout.Shown]:
    """What a workload's race says."""
    told = race_words.verdict_sentence(race, view.study), race_words.chances_sentence(race)
    return [layout.line(f"race: {each}") for each in told if each]


CHAPTER = Chapter("race", _find, _page, on_each_workload=True, table=race_lines)
