"""Remembers what a client has mounted, and keeps it mounted."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Callable, Iterator, List, Optional

from understudy import errors
from understudy.types import Segment, now

log = logging.getLogger("understudy")


class Mounts:
    """The segments of a client. A thread pings for them, from the first one on."""

    def __init__(self, keep: Callable[[bool], None], interval: float) -> None:
        self._busy = threading.Lock()  # held during a call that mounts or unmounts
        self._keep = keep
        self._interval = interval
        self._lock = threading.Lock()  # guards what follows; a leaf
        self._segments: List[Segment] = []
        self._pinging: Optional[threading.Thread] = None
        self._ended = threading.Event()

    @contextlib.contextmanager
    def alone(self, operation: str, timeout: float, advice: str = "") -> Iterator[float]:
        """Waits until no other call mounts or unmounts, and yields the time that is left then.

        Raises Unavailable, with advice, if that takes too long.
        """
        deadline = now() + timeout
        if not self._busy.acquire(timeout=min(max(timeout, 0), threading.TIMEOUT_MAX)):
            detail = "other segments are being mounted or unmounted; nothing was changed"
            raise errors.Unavailable(operation, detail + advice)
        try:
            yield deadline - now()
        finally:
            self._busy.release()

    def add(self, segment: Segment) -> None:
        """Remembers a segment, and forgets those that its mount has unmounted."""
        with self._lock:
            kept = [s for s in self._segments if s.id != segment.id and not s.overlaps(segment)]
            self._segments = [*kept, segment]
            if self._pinging is None and not self._ended.is_set():
                self._pinging = threading.Thread(target=self._run, name="understudy-ping", daemon=True)
                self._pinging.start()

    def remove(self, segment_id: str) -> None:
        with self._lock:
            self._segments = [s for s in self._segments if s.id != segment_id]

    def all(self) -> List[Segment]:
        with self._lock:
            return list(self._segments)

    def _run(self) -> None:
        again = False
        while not self._ended.wait(self._interval):
            if not self.all():
                continue
            try:
                self._keep(again)
                again = False
            except errors.Error as error:
                again = True
                log.debug("the segments may be forgotten, trying again: %s", error)
            except Exception:  # a defect: without pings the server would forget the segments
                again = True
                log.warning("a ping failed, trying again", exc_info=True)

    def close(self) -> None:
        """Ends the thread at its next look; calls of the client end with the client."""
        self._ended.set()

    def join(self) -> None:
        """Waits for the end of the thread behind close, so that none is in gRPC when the program ends."""
        with self._lock:
            pinging = self._pinging
        if pinging is not None and pinging is not threading.current_thread():
            pinging.join(timeout=1)
