"""Access control and every request code: who is let in, and with which permissions.

The table of needs is written down once more in `support.access`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from rocketmq_sdk.broker_embedded.access.users import UserStatus
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from support.access import NEEDS, ON, SignedPeer, add_user, sample, signed
from support.access_fuzz import attack
from support.broker import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.request import Request
    from support.broker import Peer

NO_PERMISSION = int(ResponseCode.NO_PERMISSION)
MAY_NAME_NOTHING: Final = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.END_TRANSACTION,
    RequestCode.BATCH_ACK_MESSAGE,
)


class Both:
    """A broker with access control, a connection to it and one to its name server."""

    def __init__(self, broker: EmbeddedBroker, own: Peer, namesrv: Peer) -> None:
        self.broker = broker
        self.own = own
        self.namesrv = namesrv
        self.rows: dict[RequestCode, tuple[Request, Peer]] = {
            **{row.code: (row, own) for row in broker.requests},
            **{row.code: (row, namesrv) for row in broker.namesrv.requests},
        }

    def request(self, code: RequestCode) -> tuple[Command, Peer]:
        """A sample of the request, and whom it is for."""
        if code in self.rows:
            row, peer = self.rows[code]
            return sample(row), peer
        return Command(int(code), ext_fields={"topic": "T"}, body=b"{}"), self.own


@pytest.fixture
async def both(autojump_clock: MockClock) -> AsyncIterator[Both]:
    async with EmbeddedBroker(**ON) as broker, trio.open_nursery() as nursery:
        yield Both(
            broker, await connect(broker, nursery), await connect(broker, nursery, namesrv=True)
        )
        nursery.cancel_scope.cancel()


ALL = pytest.mark.parametrize("code", list(RequestCode), ids=[code.name for code in RequestCode])


def said(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


async def test_each_served_request_says_what_it_needs(both: Both) -> None:
    assert {int(code) for code in both.rows} == set(NEEDS)


async def test_who_is_not_let_in(both: Both) -> None:
    """Nobody, a stranger, a wrong signature, another body, another field: whatever is
    asked, of a request that nobody serves too.
    """
    table = both.broker.parts.access.table
    await add_user(table, "gone")
    await table.update_user("gone", {"user_status": UserStatus.DISABLE})
    for code in RequestCode:
        await check_refusals(both, code)
    assert both.broker.parts.access.audit.counters["authenticated"] == 0


async def check_refusals(both: Both, code: RequestCode) -> None:
    request, peer = both.request(code)
    assert said(await peer.ask(request)) == (NO_PERMISSION, "username cannot be null.")
    request, _ = both.request(code)
    assert said(await peer.ask(signed(request, "stranger"))) == (
        NO_PERMISSION,
        "User:stranger is not found.",
    )
    request, _ = both.request(code)
    assert said(await peer.ask(signed(request, "gone", "gone"))) == (
        NO_PERMISSION,
        "User:gone is disabled.",
    )
    wrong = (NO_PERMISSION, "check signature failed.")
    request, _ = both.request(code)
    assert said(await peer.ask(signed(request, secret="another"))) == wrong
    request = signed(both.request(code)[0])
    request.body += b" "
    assert said(await peer.ask(request)) == wrong
    request = signed(both.request(code)[0])
    request.ext_fields["another"] = "field"
    assert said(await peer.ask(request)) == wrong
    request = signed(both.request(code)[0])
    del request.ext_fields["Signature"]
    assert said(await peer.ask(request)) == wrong, code.name


@ALL
async def test_what_a_user_needs(both: Both, code: RequestCode) -> None:
    """Without policies nothing is served; with all but one permission neither; with all
    of them it is, whichever of the alternatives the policy names.
    """
    table = both.broker.parts.access.table
    await add_user(table, "bob")
    request, peer = both.request(code)
    bob = SignedPeer(peer, "bob")
    if code not in both.rows:
        answer = await bob.ask(request)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return
    needs = [tuple(need.split()) for need in NEEDS[int(code)].split("; ")]
    answer = await bob.ask(request)
    resources = {resource for resource, _ in needs}
    assert said(answer) in [
        (
            NO_PERMISSION,
            f"User:bob has no permission to access {resource} from 127.0.0.1, no matched policies.",
        )
        for resource in resources
    ]
    for left_out, (missing, _) in enumerate(needs):
        given = [
            (resource, actions.replace("|", ","), "Allow")
            for place, (resource, actions) in enumerate(needs)
            if place != left_out
        ]
        others = (missing, "Pub,Sub,Create,Update,Delete,Get,List", "Allow")
        actions = set(others[1].split(",")) - set(needs[left_out][1].split("|"))
        given.append((missing, ",".join(sorted(actions)), "Allow"))
        await add_user(table, f"without{left_out}", *given)
        answer = await SignedPeer(peer, f"without{left_out}").ask(both.request(code)[0])
        assert answer.code == NO_PERMISSION, answer.remark
        assert f"access {missing} from" in (answer.remark or "")
    most = max(len(actions.split("|")) for _, actions in needs)
    for choice in range(most):
        chosen = [
            (resource, (parts := actions.split("|"))[choice % len(parts)], "Allow")
            for resource, actions in needs
        ]
        await add_user(table, f"with{choice}", *chosen)
        answer = await SignedPeer(peer, f"with{choice}").ask(both.request(code)[0])
        assert "has no permission" not in (answer.remark or ""), answer
        assert answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert both.broker.parts.access.audit.counters["denied"] == 1 + len(needs)


@ALL
async def test_a_super_user_needs_nothing(both: Both, code: RequestCode) -> None:
    """And somebody else's request that names nothing needs the cluster, or nothing
    where nothing can be named: a heartbeat of producers, and so on.
    """
    if code in both.rows:
        row, peer = both.rows[code]
        await add_user(both.broker.parts.access.table, "bob")
        empty = Command(int(code), body=b"{}" if row.needs.body else b"")
        answer = await SignedPeer(peer, "bob").ask(empty)
        if code in MAY_NAME_NOTHING:
            assert "has no permission" not in (answer.remark or "")
        else:
            assert answer.code == NO_PERMISSION, answer
    request, peer = both.request(code)
    answer = await SignedPeer(peer).ask(request)
    assert "has no permission" not in (answer.remark or ""), answer
    assert "signature" not in (answer.remark or "")
    served = answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert served == (code in both.rows)


def test_hostile_frames_let_nobody_in() -> None:
    """`tools/fuzz_access.py` does it a million times."""
    report = trio.run(attack, 4000, 7, NEEDS)
    assert report.failures == []
    assert report.frames == 4000
    assert min(report.unreadable, report.refused, report.served) > 200, report
