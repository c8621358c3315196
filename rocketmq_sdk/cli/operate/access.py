"""Users, and what they may do."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.cli.operate.command import Command, Session
from rocketmq_sdk.cli.operate.topics import place_arguments
from rocketmq_sdk.errors import BrokerError, ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from typing import Any

    from rocketmq_sdk.cli.operate.output import Row
    from rocketmq_sdk.protocol.bodies.access import AclInfo, UserInfo


def _user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-u", "--username", required=True, metavar="NAME")
    place_arguments(parser)


def _password_arguments(parser: argparse.ArgumentParser) -> None:
    password = parser.add_mutually_exclusive_group()
    password.add_argument(
        "-p", "--password", metavar="TEXT", help="others on this machine can see it; better:"
    )
    password.add_argument("--password-file", metavar="FILE", help="its first line is the password")


def _password(options: argparse.Namespace) -> str | None:
    if options.password_file is None:
        return str(options.password) if options.password is not None else None
    try:
        lines = Path(options.password_file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--password-file cannot be read: {error}") from error
    if not lines or not lines[0]:
        raise ConfigurationError(f"the first line of {options.password_file} is empty")
    return lines[0]


def _asked_password(username: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigurationError("give the password: --password-file FILE, or -p TEXT")
    return getpass.getpass(f"password of {username}: ")


def _where(session: Session) -> dict[str, Any]:
    return {
        "address": session.options.broker_addr,
        "cluster": session.options.cluster_name,
    }


def _create_user_arguments(parser: argparse.ArgumentParser) -> None:
    _user(parser)
    _password_arguments(parser)
    parser.add_argument("-t", "--user-type", choices=["Normal", "Super"], default="Normal")


async def _create_user(session: Session) -> None:
    options = session.options
    await session.admin.users.create(
        options.username,
        _password(options) or _asked_password(options.username),
        user_type=options.user_type,
        **_where(session),
    )
    session.out.done(f"the user {options.username} is made", user=options.username)


def _update_user_arguments(parser: argparse.ArgumentParser) -> None:
    _user(parser)
    _password_arguments(parser)
    parser.add_argument("-t", "--user-type", choices=["Normal", "Super"])
    parser.add_argument("-s", "--user-status", choices=["enable", "disable"])


async def _update_user(session: Session) -> None:
    options = session.options
    password = _password(options)
    if password is None and options.user_type is None and options.user_status is None:
        raise ConfigurationError("give what is to change: a password, -t or -s")
    await session.admin.users.update(
        options.username,
        password=password,
        user_type=options.user_type,
        user_status=options.user_status,
        **_where(session),
    )
    session.out.done(f"the user {options.username} is changed", user=options.username)


async def _delete_user(session: Session) -> None:
    name = session.options.username
    try:
        existed = await session.admin.users.get(name, **_where(session)) is not None
    except BrokerError:  # who may delete may not always look
        existed = True
    await session.admin.users.delete(name, **_where(session))  # another broker may have him
    text = f"the user {name} is deleted with what he might do"
    session.out.done(text if existed else f"there was no user {name}", user=name, existed=existed)


def _users(users: Iterable[UserInfo]) -> list[Row]:
    """Users without their passwords."""
    return [
        {"user": user.username, "type": user.user_type, "status": user.user_status}
        for user in users
    ]


async def _get_user(session: Session) -> int:
    user = await session.admin.users.get(session.options.username, **_where(session))
    session.out.rows(_users([user] if user else []), none="there is no such user")
    return int(user is None)


def _list_users_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--filter", metavar="TEXT", help="names that contain it")
    place_arguments(parser)


async def _list_users(session: Session) -> None:
    users = await session.admin.users.list(session.options.filter, **_where(session))
    session.out.rows(_users(users), none="there is no user")


def _copy_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--from-broker", required=True, metavar="HOST:PORT")
    parser.add_argument("-t", "--to-broker", required=True, metavar="HOST:PORT")


def _copy_users_arguments(parser: argparse.ArgumentParser) -> None:
    _copy_arguments(parser)
    parser.add_argument("-u", "--usernames", metavar="NAME,...", help="default: all")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]


async def _copy_users(session: Session) -> None:
    options = session.options
    await session.admin.users.copy(
        options.from_broker, options.to_broker, _names(options.usernames)
    )
    session.out.done(f"users of {options.from_broker} are at {options.to_broker} too")


def _subject(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "-s", "--subject", required=required, metavar="User:NAME", help="or the name alone"
    )
    place_arguments(parser)


def _acl_arguments(parser: argparse.ArgumentParser) -> None:
    _subject(parser)
    parser.add_argument(
        "-r",
        "--resources",
        required=True,
        metavar="RESOURCE,...",
        help="*, Topic:NAME, Topic:PREFIX*, Group:NAME, Cluster:NAME",
    )
    parser.add_argument(
        "-a",
        "--actions",
        required=True,
        metavar="ACTION,...",
        help="Pub, Sub, Create, Update, Delete, Get, List, All",
    )
    parser.add_argument("-d", "--decision", choices=["Allow", "Deny"], default="Allow")
    parser.add_argument("-i", "--source-ip", metavar="ADDRESS,...", help="or ranges; default: all")


def _acl(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "subject": options.subject,
        "resources": _names(options.resources),
        "actions": _names(options.actions),
        "decision": options.decision,
        "source_ips": _names(options.source_ip) or (),
    }


async def _create_acl(session: Session) -> None:
    await session.admin.acls.create(**_acl(session.options), **_where(session))
    session.out.done(f"the policies of {session.options.subject} are made")


async def _update_acl(session: Session) -> None:
    await session.admin.acls.update(**_acl(session.options), **_where(session))
    session.out.done(f"the policies of {session.options.subject} are changed")


def _delete_acl_arguments(parser: argparse.ArgumentParser) -> None:
    _subject(parser)
    parser.add_argument("-r", "--resource", metavar="RESOURCE", help="default: all")


async def _delete_acl(session: Session) -> None:
    options, resource = session.options, session.options.resource
    try:
        found = await session.admin.acls.get(options.subject, **_where(session))
    except BrokerError:  # who may delete may not always look
        existed = True
    else:
        rows = _entries([] if found is None else [found])
        existed = any(resource in (None, row["resource"]) for row in rows)
    await session.admin.acls.delete(options.subject, resource, **_where(session))
    text = f"policies of {options.subject} are deleted"
    none = f"{options.subject} had no policies{'' if resource is None else f' for {resource}'}"
    session.out.done(text if existed else none, existed=existed)


def _entries(acls: Iterable[AclInfo]) -> list[Row]:
    return [
        {
            "subject": acl.subject,
            "policy": policy.policy_type,
            "resource": entry.resource,
            "actions": list(entry.actions or ()),
            "sourceIps": list(entry.source_ips or ()),
            "decision": entry.decision,
        }
        for acl in acls
        for policy in acl.policies
        for entry in policy.entries
    ]


async def _get_acl(session: Session) -> int:
    acl = await session.admin.acls.get(session.options.subject, **_where(session))
    session.out.rows(_entries([acl] if acl else []), none="there are no such policies")
    return int(acl is None)


def _list_acls_arguments(parser: argparse.ArgumentParser) -> None:
    _subject(parser, required=False)
    parser.add_argument("-r", "--resource", metavar="TEXT", help="resources that contain it")


async def _list_acls(session: Session) -> None:
    options = session.options
    acls = await session.admin.acls.list(options.subject, options.resource, **_where(session))
    session.out.rows(_entries(acls), none="there are no policies")


def _copy_acls_arguments(parser: argparse.ArgumentParser) -> None:
    _copy_arguments(parser)
    parser.add_argument("-s", "--subjects", metavar="User:NAME,...", help="default: all")


async def _copy_acls(session: Session) -> None:
    options = session.options
    await session.admin.acls.copy(options.from_broker, options.to_broker, _names(options.subjects))
    session.out.done(f"policies of {options.from_broker} are at {options.to_broker} too")


COMMANDS: Final = (
    Command("createUser", "make a user", _create_user, _create_user_arguments),
    Command("updateUser", "change a user", _update_user, _update_user_arguments),
    Command("deleteUser", "delete a user", _delete_user, _user),
    Command("getUser", "show a user", _get_user, _user),
    Command("listUser", "list users", _list_users, _list_users_arguments),
    Command("copyUser", "copy users to another broker", _copy_users, _copy_users_arguments),
    Command("createAcl", "allow or deny a user something", _create_acl, _acl_arguments),
    Command("updateAcl", "change what a user may do", _update_acl, _acl_arguments),
    Command("deleteAcl", "delete policies of a user", _delete_acl, _delete_acl_arguments),
    Command("getAcl", "show the policies of a user", _get_acl, _subject),
    Command("listAcl", "list policies", _list_acls, _list_acls_arguments),
    Command("copyAcl", "copy policies to another broker", _copy_acls, _copy_acls_arguments),
)
