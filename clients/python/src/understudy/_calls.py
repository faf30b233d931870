"""Makes calls: repeats them where that is safe, until they have an outcome."""

from __future__ import annotations

import random
import secrets
import threading
from typing import Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar

import grpc

from understudy import _finder, _wire, errors
from understudy.types import Leader, now

R = TypeVar("R")
T = TypeVar("T")

MAX_BATCH = 10_000
# How long a leader may answer nothing before all nodes are asked whether they lead.
QUIET = 0.25
# Pauses between attempts, in seconds: at first, at last.
FIRST_PAUSE, LAST_PAUSE, GROWTH = 0.01, 0.16, 1.5
# How long nodes are asked again for what they know by a request id alone, from the sending
# of the first attempt that may have been applied. They forget such ids after a minute; the
# rest is for an attempt that is still on its way when the time is up.
REPEAT_FOR = 40.0


def new_request_id() -> int:
    """The number by which nodes know a repeated call, with room for the items of a batch."""
    return 1 + secrets.randbelow(2**63 - 1 - MAX_BATCH)


class Caller:
    """Makes calls of one cluster."""

    def __init__(self, finder: _finder.Finder, cluster_id: str) -> None:
        self._finder = finder
        self._cluster_id = cluster_id
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()
        self._finder.close()

    def call(
        self,
        operation: _wire.Operation[R],
        request: Any,
        timeout: float,
        whole: Optional[Callable[[R], bool]] = None,
    ) -> Tuple[R, float]:
        """Returns the answer of a call, and the time before it was sent.

        whole says whether an answer has all that it must have.
        """

        def attempt(node: _finder.Node, leader: Leader, deadline: float) -> Tuple[R, float]:
            sent = now()
            return self.attempt(node, leader, operation, request, deadline, whole), sent

        return self.repeat(operation, timeout, attempt)

    def repeat(
        self,
        operation: _wire.Operation[Any],
        timeout: float,
        attempt: Callable[[_finder.Node, Leader, float], T],
    ) -> T:
        """Makes attempts until one brings an answer, or the time is up."""
        deadline = now() + timeout
        patience = REPEAT_FOR if operation.repeat is _wire.Repeat.BY_REQUEST_ID else timeout
        attempts, is_open, pause = 0, False, FIRST_PAUSE
        last: Optional[errors.Error] = None
        end = deadline
        while not self.closed.is_set():
            found = self._finder.current() or self._finder.find(None, min(_finder.SEARCH, end - now()))
            if not is_open:  # what was sent before has changed nothing
                end = min(deadline, now() + patience)
            elif now() >= end:
                break
            if found is not None:
                attempts += 1
                try:
                    return attempt(found[0], found[1], end)
                except _wire.Failure as failure:
                    last = failure.error
                    if failure.drop:
                        self._finder.drop(found[1])
                        self._finder.hint(failure.leader)
                    is_open = is_open or (failure.open and operation.mutates)
                    self._final(operation, failure, is_open)
            if not is_open:
                end = deadline
            left = end - now()
            if left <= 0:
                break
            self.closed.wait(min(left, pause * random.uniform(0.5, 1.5)))
            pause = min(pause * GROWTH, LAST_PAUSE)
        raise self._gave_up(operation, is_open, attempts, last, end < deadline)

    def _final(self, operation: _wire.Operation[Any], failure: _wire.Failure, is_open: bool) -> None:
        """Raises what the caller gets of a failure after which the call is not repeated."""
        if not failure.repeat and (failure.settles or not is_open):
            raise failure.error from None
        if not failure.repeat or (is_open and operation.repeat is _wire.Repeat.NEVER):
            detail = "all of it, a part or nothing may be done; it was not repeated, as that might change what was done since"
            raise errors.Unresolved(operation.name, f"{detail}: look first ({failure.error})") from None

    def _gave_up(
        self, operation: _wire.Operation[Any], is_open: bool, attempts: int, last: Optional[errors.Error], too_old: bool
    ) -> errors.Error:
        detail = "the call may have been applied; look, or repeat it" if is_open else "nothing was changed"
        if is_open and too_old:
            detail += f"; it was repeated for {REPEAT_FOR:g} s, and nodes forget request ids after a minute"
        if self.closed.is_set():
            detail += "; the client is closed"
        if last is not None:
            detail += f"; {attempts} attempts, the last one: {last}"
        why = self._finder.why()
        if why:
            detail += f"; no node serves: {why}"
        return errors.Unresolved(operation.name, detail) if is_open else errors.Unavailable(operation.name, detail)

    def attempt(
        self,
        node: _finder.Node,
        leader: Leader,
        operation: _wire.Operation[R],
        request: Any,
        deadline: float,
        whole: Optional[Callable[[R], bool]] = None,
    ) -> R:
        """Makes a call once. Raises a Failure unless there is an answer to pass on."""
        begun = now()
        try:
            future = node.call(operation, request, deadline - now())
        except ValueError as closed:  # of the channel
            raise _wire.Failure(errors.Unavailable(operation.name, str(closed)), repeat=True, drop=True) from None
        try:
            answer: Any = self._await(future, leader, operation)
        except grpc.FutureCancelledError:
            error = errors.Unresolved(operation.name, f"{leader.node_id} answered nothing, and another node leads")
            raise _wire.Failure(error, repeat=True, open=True, drop=True) from None
        except grpc.RpcError as failed:
            failure = node.too_large(failed, operation, request) or _wire.judge(failed, operation)
            if failure.node_id:
                self.admit(operation, begun, failure.cluster_id, failure.node_id, failure.term, failure.error)
            raise failure from None
        header = answer.header
        self.admit(operation, begun, header.cluster_id, header.node_id, header.term, None)
        if whole is not None and not whole(answer):
            raise _not_whole(operation, header.node_id)
        result: R = answer
        return result

    def _await(self, future: Any, leader: Leader, operation: _wire.Operation[Any]) -> Any:
        """Waits for an answer, but not of a leader that hangs while another one serves."""
        while True:
            try:
                return future.result(timeout=QUIET)
            except grpc.FutureTimeoutError:
                pass
            found = self._finder.find(leader, QUIET)
            if self.closed.is_set() or (found is not None and not found[1].is_the_same_as(leader)):
                future.cancel()

    def admit(
        self,
        operation: _wire.Operation[Any],
        begun: float,
        cluster_id: str,
        node_id: str,
        term: int,
        error: Optional[errors.Error],
    ) -> None:
        """Raises a Failure for an answer, to an attempt begun at a time, that may not be passed on."""
        if cluster_id != self._cluster_id:
            detail = f"node {node_id} belongs to cluster {cluster_id}, and this client to {self._cluster_id}"
            raise _wire.Failure(errors.InvalidParams(operation.name, detail), drop=True) from None
        # Only of the primary is a lower term a sign that it was replaced.
        if isinstance(error, errors.NotLeader):
            self._finder.announce(term)
        elif not self._finder.served(term, begun):
            detail = f"node {node_id} answered in term {term}, which has ended; the answer was dropped"
            raise _wire.Failure(errors.NotLeader(operation.name, detail), repeat=True, open=True, drop=True) from None

    def change_all(
        self,
        operation: _wire.Operation[R],
        items: Sequence[Any],
        timeout: float,
        request: Callable[[int, Sequence[Any]], Any],
        take: Callable[[int, R, int], bool],
    ) -> List[Optional[errors.Error]]:
        """Makes a call that changes many items, and returns what came of each, None for success.

        request returns what asks for a run of items; take gets the index of its first
        item, the answer and how many items were asked for, and says whether it is whole. Items without an outcome are
        repeated, with the request ids that they had. Raises only if no item was answered.
        """
        batch = _Batch(operation, len(items))
        request_id = new_request_id()

        def attempt(node: _finder.Node, leader: Leader, deadline: float) -> None:
            worst: Optional[_wire.Failure] = None
            for begin, end in batch.runs():
                message = request(request_id + begin, items[begin:end])
                try:
                    answer: Any = self.attempt(node, leader, operation, message, deadline)
                    if not take(begin, answer, end - begin):
                        raise _not_whole(operation, answer.header.node_id)
                except _wire.Failure as failure:
                    batch.lost(begin, end, failure)
                    raise (_both(worst, failure) or failure) from None
                worst = _both(worst, batch.settle(begin, end, answer.errors))
            if worst is not None:
                raise worst

        try:
            self.repeat(operation, timeout, attempt)
        except errors.Error as error:
            if not batch.answered:
                raise
            batch.abandon(error)
        return batch.failed


def _not_whole(operation: _wire.Operation[Any], node_id: str) -> _wire.Failure:
    """An answer that lacks something counts as lost."""
    error = errors.Unresolved(operation.name, f"the answer of {node_id} is not whole")
    return _wire.Failure(error, repeat=True, open=True)


def _both(earlier: Optional[_wire.Failure], later: Optional[_wire.Failure]) -> Optional[_wire.Failure]:
    """The later failure, which leaves open what either does, and has the leader found again if either does."""
    if earlier is None or later is None:
        return later or earlier
    later.open, later.drop = earlier.open or later.open, earlier.drop or later.drop
    return later


class _Batch:
    """The outcomes of the items of a batch, as far as they are known."""

    def __init__(self, operation: _wire.Operation[Any], n: int) -> None:
        self._operation = operation
        self._left = list(range(n))  # items without an outcome, in order
        self._open = [False] * n  # an attempt may have been applied
        self.failed: List[Optional[errors.Error]] = [None] * n
        self.answered = False

    def runs(self) -> List[Tuple[int, int]]:
        """The items that are left, as runs from one to before another."""
        runs: List[Tuple[int, int]] = []
        for i in self._left:
            if runs and runs[-1][1] == i:
                runs[-1] = (runs[-1][0], i + 1)
            else:
                runs.append((i, i + 1))
        return runs

    def lost(self, begin: int, end: int, failure: _wire.Failure) -> None:
        for i in range(begin, end):
            self._open[i] = self._open[i] or failure.open

    def settle(self, begin: int, end: int, items: Any) -> Optional[_wire.Failure]:
        """Takes note of the answer to a run. Returns the failure of items still without an outcome."""
        self.answered = True
        self.failed[begin:end] = [None] * (end - begin)
        worst: Optional[_wire.Failure] = None
        again = set()
        for index, error in _wire.item_errors(items, self._operation.name):
            i = begin + index
            self.failed[i] = error
            failure = _wire.judge_kind(error)
            if failure.repeat and not (failure.open and self._operation.repeat is _wire.Repeat.NEVER):
                self._open[i] = self._open[i] or failure.open
                again.add(i)
                worst = _both(worst, failure)
        self._left = [i for i in self._left if not begin <= i < end or i in again]
        return worst

    def abandon(self, error: errors.Error) -> None:
        """Ends the items that are left, with the error that ended the call."""
        for i in self._left:
            if self._open[i]:
                text = f"this item may have been changed; of the call: {error.detail}"
                self.failed[i] = errors.Unresolved(error.operation, text)
                continue
            kind: Type[errors.Error] = type(error)
            if isinstance(error, errors.Unresolved):
                kind = errors.Unavailable
            self.failed[i] = kind(error.operation, f"this item was not changed; of the call: {error.detail}")
