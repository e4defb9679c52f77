"""Views from a store: what the tables need, and with ``details`` what the page needs as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from diskproof.records import HostRecord, StudyRecord
from diskproof.report.chapter import Chapter, Source
from diskproof.report.chapters import CHAPTERS
from diskproof.report.durability import join_verdicts
from diskproof.report.view import StudyView, choose_studies, rank_workloads
from diskproof.store import Store

_NOBODY = HostRecord("", "no host yet", {})


def read_views(
    store: Store,
    wanted: Sequence[str] = (),
    *,
    details: bool = False,
    chapters: Sequence[Chapter[Any]] = CHAPTERS,
) -> tuple[StudyView, ...]:
    """A view for each study (all, or those of these names or ids) and host it ran on.

    Raises UsageError for a study that the store does not hold.
    """
    told = [chapter for chapter in chapters if details or chapter.told_in_tables]
    return tuple(
        _view(source, told)
        for study in choose_studies(store, wanted)
        for source in _sources(store, study, told, details=details)
    )


def _sources(
    store: Store, study: StudyRecord, chapters: Sequence[Chapter[Any]], *, details: bool
) -> Iterator[Source]:
    """A study host by host."""
    rows = store.results(study.id)
    ids = [row.host_id for row in rows]
    for chapter in chapters:
        ids += chapter.hosts(store, study) if chapter.hosts else ()
    hosts = {host.id: host for host in store.hosts()}
    verdicts = join_verdicts(store.verdicts())
    for host in [hosts[host_id] for host_id in dict.fromkeys(ids)] or [_NOBODY]:
        own = tuple(row for row in rows if row.host_id == host.id)
        loads = rank_workloads(study, own, verdicts)
        yield Source(store, study, host, own, loads, details)


def _view(source: Source, chapters: Sequence[Chapter[Any]]) -> StudyView:
    found = {chapter.name: chapter.find(source) for chapter in chapters}
    parts = {name: part for name, part in found.items() if part}
    return StudyView(source.study, source.host, source.workloads, parts)
