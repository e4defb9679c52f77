"""Web, mail and database servers as steps, and what of them is reckoned on the host."""

from dataclasses import replace
from fractions import Fraction

import pytest

from diskproof.study.tile_file import built_in_tile
from diskproof.tiles.loads.mail import body_bytes
from diskproof.tiles.servers import mariadb, postfix, web
from diskproof.tiles.steps import TileContext, load_role

TILE = built_in_tile()
CONTEXT = TileContext(TILE, "smb", Fraction(1))


def test_servers_start_one_after_the_other() -> None:
    """On a guest of one processor that is no slower, and it shows who failed."""
    for name, servers in (("web", ["mariadb", "web", "postfix"]), ("db", ["postgres"])):
        guest = TILE.guest(name)
        steps = load_role(guest.role).setup(guest, CONTEXT)
        assert [step.name for step in steps] == [f"{name}.{it}" for it in ("disk", *servers)]
        assert [step.after for step in steps[1:]] == [(step.name,) for step in steps[:-1]]
        assert {(step.guest, step.phase, step.work) for step in steps} == {(name, "setup", "")}


def test_a_mailbox_for_each_workload_that_mails() -> None:
    mails = TILE.work("mail")
    works = (*TILE.works, replace(mails, name="more"), replace(mails, name="other", target="db"))
    context = replace(CONTEXT, tile=replace(TILE, works=works))
    *_, start = load_role("web-mail").setup(TILE.guest("web"), context)
    boxes = start.files["/run/boxes"].decode().splitlines()
    assert boxes == [f"{name}@tile.test {name}/" for name in ("mail", "more", postfix.PROBE)]


def test_what_would_risk_data_is_left_as_it_is() -> None:
    for text in (mariadb.CONFIG, postfix.MAIN):
        assert not any(word in text for word in ("flush_log", "doublewrite", "sync", "eatmydata"))


def test_services_have_eight_columns() -> None:
    lines = postfix.render_services().splitlines()
    assert {len(line.split()) for line in lines} == {8}
    assert len({line.split()[0] for line in lines}) == len(lines)
    (virtual,) = [line for line in lines if line.startswith("virtual ")]
    assert virtual == "virtual unix - n n - - virtual"


def test_the_page_has_the_dearest_items_first() -> None:
    items = mariadb.items_of(web.CATEGORY, web.ROWS)
    prices = [price for _, _, price, _ in items]
    assert len(items) == web.ROWS and prices == sorted(prices, reverse=True)
    assert all(number % mariadb.CATEGORIES == web.CATEGORY for number, *_ in items)
    lines = web.render_page().splitlines()
    assert lines[3] == "<tr><td>432<td>Item 432<td>984<td>3" and len(lines) == web.ROWS + 4


@pytest.mark.parametrize("size", [1, 79, 80, 81, 160, 161, 57344])
def test_a_body_loses_the_ends_of_its_lines(size: int) -> None:
    """As smtp-source fills it: CR and LF end each 80 bytes that more bytes follow."""
    body = bytearray(b"X" * size)
    for end in range(80, size, 80):
        body[end - 2 : end] = b"\r\n"
    delivered = bytes(body).replace(b"\r\n", b"\n") + b"\n"
    assert body_bytes(size) == len(delivered)
