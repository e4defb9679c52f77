"""`diskproof` alone: where one is, and what to type next."""

import os
from pathlib import Path
from threading import Thread

from diskproof.cli.options import DEFAULT_STORE
from diskproof.cli.study_verbs import read_statuses
from diskproof.cli.terminal import console
from diskproof.errors import DiskproofError
from diskproof.host.glance import glance
from diskproof.report.orientation import FoundStudies, Here, render_orientation
from diskproof.store import open_store
from diskproof.store.connect import StoreUrl

STORE_SECONDS = 3.0
EXAMPLE = Path("studies/quick.toml")


def orient() -> None:
    """Print this host, the machines and studies that are found, and the next commands."""
    seen = glance()
    found = seen.machines
    here = Here(
        seen.able,
        seen.unable,
        seen.packages,
        found.machines if found else None,
        found.obstacles if found else (),
        EXAMPLE if EXAMPLE.is_file() else None,
    )
    console().print(render_orientation(here, _find_studies()))


def _find_studies() -> FoundStudies:
    """The studies of the store in this folder, or of the one that DISKPROOF_STORE names. A store
    that is locked, or far away, is not waited for."""
    url = os.environ.get("DISKPROOF_STORE") or DEFAULT_STORE
    found: list[FoundStudies] = []
    looking = Thread(target=lambda: found.append(_read_studies(url)), daemon=True)
    looking.start()
    looking.join(STORE_SECONDS)
    if found:
        return found[0]
    place = str(StoreUrl(url))  # without a password
    return FoundStudies(place, trouble=f"{place} does not answer; `diskproof status` waits")


def _read_studies(url: str) -> FoundStudies:
    if url == DEFAULT_STORE and not Path(url).exists():
        return FoundStudies(url)
    try:
        with open_store(url) as store:
            statuses, _ = read_statuses(store)
            judged = {row.study_id for row in store.verdicts()}
        return FoundStudies(store.place, tuple(statuses), frozenset(judged))
    except DiskproofError as error:
        return FoundStudies(url, trouble="; ".join(filter(None, (error.what, error.why))))
