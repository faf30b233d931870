"""Who a client is to the nodes, and how it knows them."""

from __future__ import annotations

import os
import pathlib
from typing import Optional, Union

import grpc

from understudy import errors

Path = Union[str, "os.PathLike[str]"]


def credentials(
    given: Optional[grpc.ChannelCredentials],
    tls: bool,
    ca: Optional[Path],
    cert: Optional[Path],
    key: Optional[Path],
    token: Optional[str],
) -> Optional[grpc.ChannelCredentials]:
    """The credentials of all connections; None for plain text. Raises InvalidParams."""
    files = [f for f in (ca, cert, key) if f is not None]
    if given is not None:
        if files or tls or token is not None:
            raise _wrong("credentials and the tls_ options or token exclude each other; give one of them")
        return given
    if (cert is None) != (key is None):
        raise _wrong("tls_cert and tls_key need each other")
    if not files and not tls:
        if token is not None:
            raise _wrong("a token is sent over TLS only; give tls_ca, or tls=True for the system's authorities")
        return None
    channel = grpc.ssl_channel_credentials(_read("tls_ca", ca), _read("tls_key", key), _read("tls_cert", cert))
    if token is None:
        return channel
    if not token or not token.isascii() or not token.isprintable():
        raise _wrong("token must be printable ASCII, as it stands in the nodes' --roles-tokens")
    return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(token))


def _read(option: str, path: Optional[Path]) -> Optional[bytes]:
    if path is None:
        return None
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise _wrong(f"{option} cannot be read: {error}") from None


def _wrong(detail: str) -> errors.Error:
    return errors.InvalidParams("Client", detail)
