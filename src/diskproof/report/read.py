"""Views are read from a store: what tables need, and with ``details`` what the page needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from diskproof.errors import UsageError
from diskproof.records import HostRecord, StudyRecord
from diskproof.report.chapter import Chapter, Source
from diskproof.report.chapters import CHAPTERS
from diskproof.report.durability import join_verdicts
from diskproof.report.view import StudyView, choose_studies, is_beside, rank_workloads
from diskproof.store import ResultRow, Store

_NOBODY = HostRecord("", "none yet", {})


def read_views(
    store: Store,
    wanted: Sequence[str] = (),
    *,
    details: bool = False,
    chapters: Sequence[Chapter[Any]] = CHAPTERS,
) -> tuple[StudyView, ...]:
    """Read a view for each study (all, or those of these names or ids) and host it ran on.

    Raises UsageError for a study that the store does not hold.
    """
    told = [chapter for chapter in chapters if details or chapter.told_in_tables]
    studies = choose_studies(store, wanted)
    hosts = {host.id: host for host in store.hosts()}
    verdicts = join_verdicts(store.verdicts())
    views = []
    for study in studies:
        rows = store.results(study.id)
        for host in _find_hosts(store, study, rows, told, hosts) or [_NOBODY]:
            own = tuple(row for row in rows if row.host_id == host.id)
            figures = store.figures(filter(is_beside, own))
            loads = rank_workloads(study, own, verdicts, figures)
            views.append(_find_parts(Source(store, study, host, own, loads, details), told))
    return tuple(views)


def _find_hosts(
    store: Store,
    study: StudyRecord,
    rows: Sequence[ResultRow],
    chapters: Sequence[Chapter[Any]],
    hosts: Mapping[str, HostRecord],
) -> list[HostRecord]:
    """Hosts come in the order of their results, then of what the chapters know of."""
    ids = [row.host_id for row in rows]
    for chapter in chapters:
        ids += chapter.hosts(store, study) if chapter.hosts else ()
    if strange := set(ids) - hosts.keys():
        why = f"runs of study {study.id} are of the host {min(strange)}, which it does not hold"
        raise UsageError("the store holds damaged data", why, "restore it from a copy")
    return [hosts[host_id] for host_id in dict.fromkeys(ids)]


def _find_parts(source: Source, chapters: Sequence[Chapter[Any]]) -> StudyView:
    found = {chapter.name: chapter.find(source) for chapter in chapters}
    parts = {name: part for name, part in found.items() if part}
    return StudyView(source.study, source.host, source.workloads, parts)
