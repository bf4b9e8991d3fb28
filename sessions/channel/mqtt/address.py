"""Where a broker is and how to enter it."""

from __future__ import annotations

import ipaddress
import os
import ssl
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from sessions.channel.interface import ChannelError

PASSWORD_VARIABLE = "HERDSCOPE_BROKER_PASSWORD"
DEFAULT_SESSION = "main"
_FORM = "mqtt(s)://[user@]host[:port]/prefix[/session]"


class Password:
    """A password that never shows itself: its text is only had by `reveal`."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def reveal(self) -> str:
        """The secret."""
        return self._secret

    def __repr__(self) -> str:
        return "Password(***)"


class BrokerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, the topics under it that one diagnostic session uses, and the credentials to enter with.

    allow_open_commands: obey commands from a broker that asks nobody for a password, though it is not on loopback.
    """

    host: str
    port: int
    tls: bool
    prefix: str
    session: str
    username: str | None = None
    password: Password | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    allow_open_commands: bool = False

    @property
    def base(self) -> str:
        """The topic that all topics of the session begin with."""
        return f"{self.prefix}/{self.session}"

    @property
    def loopback(self) -> bool:
        """Whether the broker is on this host."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def authenticated(self) -> bool:
        """Whether we show the broker who we are."""
        return self.username is not None or self.cert_file is not None

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS settings, or None without TLS. Raise ChannelError when a file cannot be used."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.cert_file, self.key_file) if file)
            raise ChannelError(f"TLS files {files}: {error.strerror or error}") from None
        return context

    def __str__(self) -> str:
        scheme, user = "mqtts" if self.tls else "mqtt", f"{self.username}@" if self.username else ""
        return f"{scheme}://{user}{self.host}:{self.port}/{self.base}"


def is_broker_url(text: str) -> bool:
    """Whether `text` names a broker."""
    return text.startswith(("mqtt://", "mqtts://"))


def parse_broker(
    url: str,
    *,
    password_file: Path | None = None,
    ca_file: Path | None = None,
    cert_file: Path | None = None,
    key_file: Path | None = None,
    allow_open_commands: bool = False,
) -> BrokerAddress:
    """Read a broker's URL. The password comes from `password_file` or the environment, never from the URL, where `ps`
    and logs would show it. Raise ChannelError with what is wrong."""
    parts = urlsplit(url)
    if not is_broker_url(url) or not parts.hostname:
        raise ChannelError(f"{url!r} is no broker: write {_FORM}")
    if parts.password is not None:
        raise ChannelError(f"a password in the broker's URL can be read by others: put it into ${PASSWORD_VARIABLE}")
    path = [unquote(level) for level in parts.path.strip("/").split("/") if level]
    if not 1 <= len(path) <= 2 or any(set(level) & set("+#\0") for level in path):
        raise ChannelError(f"{url!r} needs a topic prefix without + or #: write {_FORM}")
    try:
        port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
    except ValueError:
        raise ChannelError(f"{url!r} has no usable port: write {_FORM}") from None
    return BrokerAddress(
        host=parts.hostname,
        port=port,
        tls=parts.scheme == "mqtts",
        prefix=path[0],
        session=path[1] if len(path) == 2 else DEFAULT_SESSION,
        username=unquote(parts.username) if parts.username else None,
        password=_password(password_file) if parts.username else None,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        allow_open_commands=allow_open_commands,
    )


def _password(file: Path | None) -> Password | None:
    if file is None:
        secret = os.environ.get(PASSWORD_VARIABLE)
        return Password(secret) if secret else None
    try:
        return Password(file.read_text(encoding="utf-8").rstrip("\n"))
    except OSError as error:
        raise ChannelError(f"password file {file}: {error.strerror}") from None
