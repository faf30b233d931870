"""Follows the keys of a cluster, over failovers."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Iterator, Optional, Type

import grpc

from understudy import _calls, _finder, _wire, errors
from understudy.types import KeyEvent, KeyEvents, KeyEventType, KeyPosition, Leader, now
from understudy.v1 import object_pb2

# How long a primary may send nothing, in seconds: it sends something every half second.
SILENT = 2.0


def follow(caller: _calls.Caller, finder: _finder.Finder, after: KeyPosition) -> Iterator[KeyEvents]:
    """See Client.key_events."""
    pause = _calls.FIRST_PAUSE
    while not caller.closed.is_set():
        found = finder.current() or finder.find(None, _finder.SEARCH)
        if found is not None:
            node, leader = found
            try:
                for message in _messages(caller, node, leader, after):
                    pause = _calls.FIRST_PAUSE
                    if message.HasField("through"):
                        p = message.through
                        after = KeyPosition(p.history, p.term, p.sequence)
                    yield KeyEvents(message.resync, tuple(map(_event, message.events)), after)
            except _wire.Failure as failure:
                if failure.drop:
                    finder.drop(leader)
                    finder.hint(failure.leader)
                if not failure.repeat:
                    raise failure.error from None
                if not failure.drop:  # it may hang while another one serves
                    finder.find(leader, _calls.QUIET)
        caller.closed.wait(pause)
        pause = min(pause * _calls.GROWTH, _calls.LAST_PAUSE)
    raise errors.Unavailable("KeyEvents", "the client is closed")


def _messages(caller: _calls.Caller, node: _finder.Node, leader: Leader, after: KeyPosition) -> Iterator[Any]:
    """What a primary sends. Raises a Failure."""
    position = object_pb2.KvPosition(history=after.history, term=after.term, sequence=after.sequence)
    begun = now()
    try:
        stream = node.stream(_wire.KEY_EVENTS, object_pb2.KvEventsRequest(after=position))
    except ValueError as closed:  # of the channel
        raise _wire.Failure(errors.Unavailable("KeyEvents", str(closed)), repeat=True, drop=True) from None
    with _Watch(stream, caller.closed) as watch:
        while True:
            watch.since = now()
            try:
                message = next(stream)
            except StopIteration:  # a stream ends with an error, or else with its node
                raise _wire.Failure(errors.Unavailable("KeyEvents", "the stream ended"), repeat=True, drop=True) from None
            except grpc.RpcError as failed:
                failure = _wire.judge(failed, _wire.KEY_EVENTS)
                if failure.node_id:
                    caller.admit(_wire.KEY_EVENTS, begun, failure.cluster_id, failure.node_id, failure.term, failure.error)
                failure.drop = failure.drop and not watch.silent
                raise failure from None
            watch.since = None
            header = message.header
            caller.admit(_wire.KEY_EVENTS, begun, header.cluster_id, header.node_id, header.term, None)
            yield message


def _event(e: Any) -> KeyEvent:
    return KeyEvent(KeyEventType(e.type), e.tenant, e.key, e.object_id, e.size, e.group_id, e.in_memory, e.on_disk)


class _Watch:
    """Ends a stream that is silent for too long, or whose client is closed."""

    def __init__(self, stream: Any, closed: threading.Event) -> None:
        self.since: Optional[float] = None  # since when a message is waited for
        self.silent = False
        self._stream = stream
        self._closed = closed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ended.wait(_calls.QUIET):
            since = self.since
            self.silent = since is not None and now() - since > SILENT
            if self.silent or self._closed.is_set():
                self._stream.cancel()
                return

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._ended.set()
        self._stream.cancel()
        self._thread.join()
