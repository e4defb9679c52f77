"""What a study asks for by itself: the answer in the words of the manager that it is like."""

import tomllib

from diskproof.advice.dialect import Dialect, Target
from diskproof.advice.dialects import DIALECTS
from diskproof.records import StudyRecord
from diskproof.report.advice.answer import ask_in
from diskproof.report.advice.choose import Wish
from diskproof.report.view import StudyView


def find_own_dialect(study: StudyRecord) -> Dialect | None:
    """That of the one manager of ``like = "MANAGER"``; None for none, and for several."""
    try:
        like = tomllib.loads(study.text).get("like")
    except (ValueError, RecursionError):  # imported results have other texts
        return None
    named = [like] if isinstance(like, str) else like
    only = named[0] if isinstance(named, list) and len(named) == 1 else None
    return DIALECTS.get(only) if isinstance(only, str) else None


def find_own_wish(view: StudyView) -> Wish:
    """With what that manager gives a new disk, and can say of one; QEMU's own else."""
    wish, dialect = Wish(file=view.file), find_own_dialect(view.study)
    return ask_in(wish, dialect, Target()) if dialect else wish
