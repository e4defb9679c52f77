"""What a backing lies on, as a plan tells it of a study and a store keeps it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SENTENCE = re.compile(r"backing (?P<backing>\S+) lies (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class Ground:
    """``text`` names folder, file system, mount options and disks, for people."""

    backing: str
    text: str

    @property
    def sentence(self) -> str:
        """It as it is stored."""
        return f"backing {self.backing} lies {self.text}"


def find_ground(text: str) -> Ground | None:
    """The ground that a sentence tells; None for any other sentence."""
    found = _SENTENCE.fullmatch(text)
    return Ground(found["backing"], found["text"]) if found else None


def find_grounds(told: Iterable[str]) -> tuple[Ground, ...]:
    """What backings lie on, each once: as the newest of several plans told it."""
    found = filter(None, map(find_ground, told))
    return tuple({each.backing: each for each in found}.values())
