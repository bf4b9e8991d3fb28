"""The flags that say how to enter a broker, defined once. The password is never among them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from sessions.channel.mqtt.address import BrokerAddress

Function = TypeVar("Function", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FLAGS = {
    "broker_password_file": click.option(
        "--broker-password-file", type=_FILE, help="Read the broker's password there ($HERDSCOPE_BROKER_PASSWORD else)."
    ),
    "broker_ca": click.option("--broker-ca", type=_FILE, help="CA that signed the broker's certificate."),
    "broker_cert": click.option("--broker-cert", type=_FILE, help="Client certificate."),
    "broker_key": click.option("--broker-key", type=_FILE, help="Key of the client certificate."),
    "allow_open_commands": click.option(
        "--allow-open-commands", is_flag=True, help="Obey commands from a remote broker that asks for no password."
    ),
}


class BrokerChoice(NamedTuple):
    """Credentials for whichever broker is named."""

    password_file: Path | None
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    allow_open_commands: bool

    def address(self, url: str) -> BrokerAddress:
        """The broker at `url`, entered with these credentials. Raise ChannelError."""
        from sessions.channel.mqtt.address import parse_broker

        return parse_broker(url, **self._asdict())


def broker_options(function: Function) -> Function:
    """Add the broker's flags to a command; its function receives them as one BrokerChoice, `broker_choice`."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        choice = BrokerChoice(*[kwargs.pop(name) for name in _FLAGS])
        return function(*args, broker_choice=choice, **kwargs)

    for flag in reversed(_FLAGS.values()):
        wrapper = flag(wrapper)
    return wrapper  # type: ignore[return-value]  # same call, minus the broker's flags
