"""A study whose content changed is another one of the same name: that is told before it starts."""

from contextlib import suppress
from pathlib import Path

from diskproof.cli.terminal import note
from diskproof.errors import DiskproofError
from diskproof.report.labels import count
from diskproof.store import Store, open_store
from diskproof.study.changes import find_changes
from diskproof.study.load import Study

MAX_NAMED = 6


def tell_of_changes(study: Study, store: Store) -> None:
    """Say of the newest other study of this name how it differs, and that its runs do not count."""
    others = [
        each
        for each in store.studies()
        if (each.name, each.origin) == (study.name, "run") and each.id != study.id
    ]
    if not others:
        return
    newest = others[-1]
    changes = find_changes(newest.text, study.text)
    told = ", ".join(changes[:MAX_NAMED]) or "a file that it names, or this diskproof"
    more = f" and {len(changes) - MAX_NAMED} more" if len(changes) > MAX_NAMED else ""
    counts = store.counts(newest.id)
    runs = count(counts.ok + counts.failed, "run")
    note(
        f"study {study.name} is {study.id} now; results of {newest.id}, of the same name ({runs}), "
        f"do not count here. Changed: {told}{more}. Each is shown by its id: --study {newest.id}"
    )


def tell_of_changes_here(study: Study, place: str) -> None:
    """The same of the store that a plan takes times from, where there is one: it needs none."""
    if Path(place).is_file():
        with suppress(DiskproofError), open_store(place) as store:
            tell_of_changes(study, store)
