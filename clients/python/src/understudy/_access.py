"""Who a client is to the nodes, and how it knows them."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Callable, Optional, Tuple, Union

import grpc

from understudy import errors

Path = Union[str, "os.PathLike[str]"]
Metadata = Tuple[Tuple[str, str], ...]
Stamps = Tuple[Tuple[int, int], ...]

# For how long a token is used before its file is read again, in seconds.
TOKEN_AGE = 1.0


class Access:
    """The credentials of all connections, as its files have them now, and the metadata of all calls."""

    def __init__(
        self,
        given: Optional[grpc.ChannelCredentials] = None,
        tls: bool = False,
        ca: Optional[Path] = None,
        cert: Optional[Path] = None,
        key: Optional[Path] = None,
        token: Optional[str] = None,
        token_file: Optional[Path] = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises InvalidParams for what does not fit together, or cannot be read."""
        self._now = now
        self._token_file = token_file
        self._token_read = 0.0  # when the file was
        self._metadata: Metadata = ()
        self._files = {name: f for name, f in (("tls_ca", ca), ("tls_cert", cert), ("tls_key", key)) if f is not None}
        self.credentials: Optional[grpc.ChannelCredentials] = given  # None for plain text
        self._stamps: Stamps = ()
        if given is not None:
            if self._files or tls or token is not None or token_file is not None:
                raise _wrong("credentials and the tls_ options or token exclude each other; give one of them")
            return
        if token is not None and token_file is not None:
            raise _wrong("token and token_file exclude each other; give one of them")
        if (cert is None) != (key is None):
            raise _wrong("tls_cert and tls_key need each other")
        if not self._files and not tls:
            if token is not None or token_file is not None:
                raise _wrong("a token is sent over TLS only; give tls_ca, or tls=True for the system's authorities")
            return
        if token is not None:
            if not _sendable(token):
                raise _wrong("token must be printable ASCII, as it stands in the nodes' --roles-tokens")
            self._metadata = _bearer(token)
        try:
            if token_file is not None and not self._read_token(token_file):
                raise _wrong("token_file must have one token, of printable ASCII without blanks")
            self._stamps = self._stamp()
            self.credentials = self._read()
        except OSError as error:
            raise _wrong(f"{self._named(error)} cannot be read: {error}") from None

    def metadata(self) -> Metadata:
        """The metadata of a call that begins now. The token's file is read again once a second at most."""
        # The token goes along as metadata. As call credentials of gRPC's it would be an object
        # of Python's that a thread of gRPC's frees, possibly after the interpreter has ended.
        if self._token_file is not None and self._now() - self._token_read >= TOKEN_AGE:
            try:
                self._read_token(self._token_file)
            except OSError:  # being replaced: the token of before goes on
                pass
        return self._metadata

    def _read_token(self, file: Path) -> bool:
        """Reads the token's file, and says whether it has one. If not, the token of before stays."""
        self._token_read = self._now()
        token = pathlib.Path(file).read_bytes().decode("latin-1").strip()
        if not _sendable(token) or " " in token:
            return False
        self._metadata = _bearer(token)
        return True

    def renew(self) -> bool:
        """Reads the files again if they have changed, and says whether that gave new credentials."""
        if not self._files:
            return False
        try:
            stamps = self._stamp()
            if stamps == self._stamps:
                return False
            self.credentials, self._stamps = self._read(), stamps
        except OSError:  # being replaced: those of before go on
            return False
        return True

    def _stamp(self) -> Stamps:
        """Tells the contents of files apart, from before they are read."""
        stats = (os.stat(f) for f in self._files.values())
        return tuple((s.st_mtime_ns, s.st_size) for s in stats)

    def _read(self) -> grpc.ChannelCredentials:
        content = {name: pathlib.Path(f).read_bytes() for name, f in self._files.items()}
        return grpc.ssl_channel_credentials(content.get("tls_ca"), content.get("tls_key"), content.get("tls_cert"))

    def _named(self, error: OSError) -> str:
        files = dict(self._files) if self._token_file is None else {**self._files, "token_file": self._token_file}
        return next((name for name, f in files.items() if str(f) == str(error.filename)), "a file")


def _sendable(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable()


def _bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def _wrong(detail: str) -> errors.Error:
    return errors.InvalidParams("Client", detail)
