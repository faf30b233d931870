"""Finds the primary among the nodes of a cluster."""

from __future__ import annotations

import queue
import random
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

import grpc

from understudy import _access, _wire, errors
from understudy.types import Leader, now
from understudy.v1 import client_pb2

CONTRACT_REVISION = 1
# For how long one search asks the nodes. One that hangs answers never.
SEARCH = 1.0
# A connection on which calls wait in silence is probed, and given up without an answer,
# before the server forgets the client, after 10 s. Servers allow no shorter interval than 5 s.
PROBE_AFTER_MS, PROBE_GIVE_UP_MS = 5500, 2000
# After this time, or a third less or more, a connection that has brought no leader is replaced, if
# none is known: its name may have another address by now, or a load balancer may lead new ones to
# another node. Not all clients that have lost one leader do it at once.
OUTDATED = 3.0
# How long a term that nobody serves shuts out the answers of a lower one: no replaced primary
# answers an attempt that was begun later, though what it has answered may still be on its way.
LAPSE_AFTER = 10.0
# How many addresses are learned from hints of nodes.
MAX_LEARNED = 16


class Node:
    """The connection to a node."""

    def __init__(self, address: str, access: _access.Access, max_message: int) -> None:
        options = (
            ("grpc.max_receive_message_length", max_message),
            ("grpc.max_send_message_length", max_message),
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.min_reconnect_backoff_ms", 1000),  # also bounds the attempt to connect
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.dns_min_time_between_resolutions_ms", 1000),  # by default 30 s
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", PROBE_AFTER_MS),
            ("grpc.keepalive_timeout_ms", PROBE_GIVE_UP_MS),
            ("grpc.http2.max_pings_without_data", 0),  # while a call waits nothing else is sent
        )
        self.address = address
        self.outdated: Optional[float] = None  # when to replace it, if it brings no leader; None if it was not asked in vain
        self.replaced = 0.0  # when it was
        self._max_message = max_message
        self._methods: Dict[str, Any] = {}
        self._access = access
        if access.credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, access.credentials, options)

    def call(self, operation: _wire.Operation[Any], request: Any, timeout: float) -> Any:
        """Begins an attempt; its result comes from the future that this returns."""
        method = self._methods.get(operation.method)
        if method is None:
            method = self._channel.unary_unary(
                operation.method,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=operation.response.FromString,
            )
            self._methods[operation.method] = method
        return method.future(request, timeout=max(timeout, 0.001), metadata=self._access.metadata())

    def stream(self, operation: _wire.Operation[Any], request: Any) -> Any:
        """Begins a call that is answered by many messages, without a deadline."""
        method = self._channel.unary_stream(
            operation.method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=operation.response.FromString,
        )
        return method(request, metadata=self._access.metadata())

    def too_large(self, failed: grpc.RpcError, operation: _wire.Operation[Any], request: Any) -> Optional[_wire.Failure]:
        """The failure of a call whose request was not sent, as it has too many bytes. None for others."""
        size = request.ByteSize()
        if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or size <= self._max_message:
            return None
        detail = f"the request has {size} bytes, at most {self._max_message} are possible; split it"
        return _wire.Failure(errors.InvalidParams(operation.name, detail))

    def close(self) -> None:
        self._channel.close()


class Finder:
    """Knows the leader: a node that has answered as such, in the highest term known.

    One thread searches at a time; the others use what it finds.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        cluster_id: str,
        access: _access.Access,
        max_message: int,
    ) -> None:
        self._cluster_id = cluster_id
        self._access = access
        self._max_message = max_message
        self._search = threading.Lock()
        self._lock = threading.Lock()  # guards what follows; a leaf
        self._nodes: List[Node] = [self._connect(a) for a in dict.fromkeys(addresses)]
        self._configured = len(self._nodes)
        self._replaced: List[Node] = []  # calls in progress there may still be answered
        self._current: Optional[Tuple[Node, Leader]] = None
        self._searched = 0.0  # when a search ended
        self._term = 0  # the highest: answers of lower ones come from a replaced primary
        self._lapsed = 0  # terms up to this one count only once they are served
        self._refused: Optional[float] = None  # when the first answer was
        self._problems: Dict[str, str] = {}
        self._met = False  # a node of this cluster has answered, ever, and not refused this client
        self._refusal: Optional[errors.Error] = None  # with which a node has refused this client, in the last search
        self._foreign = False  # a node of another one has
        self._closed = False

    def _connect(self, address: str) -> Node:
        return Node(address, self._access, self._max_message)

    def current(self) -> Optional[Tuple[Node, Leader]]:
        with self._lock:
            return self._current

    def drop(self, leader: Leader) -> None:
        """Gives up a leader that turned a call away, or cannot be reached."""
        with self._lock:
            if self._current is not None and self._current[1] == leader:
                self._current = None

    def announce(self, term: int) -> None:
        """Takes note of a term that has begun. 0 is none."""
        with self._lock:
            if term > self._term and term > self._lapsed:
                self._term, self._refused = term, None

    def served(self, term: int, begun: float) -> bool:
        """Takes note of the term of a primary's answer to an attempt that was begun at a time.

        False if that is to be refused; 0 is none.
        """
        with self._lock:
            if term == 0:
                return True
            if term < self._term:
                if not self._lapses(begun):
                    return False
                self._lapsed = max(self._lapsed, self._term)
            self._term, self._refused = term, None
            return True

    def _lapses(self, begun: float) -> bool:
        """Whether an attempt was begun when answers had been refused for long enough."""
        if self._refused is None:
            self._refused = now()
        return begun - self._refused >= LAPSE_AFTER

    def hint(self, address: str) -> Optional[Node]:
        """Takes note of where a node says that the leader is. Returns a node that is new."""
        with self._lock:
            if self._closed or not address or any(n.address == address for n in self._nodes):
                return None
            if len(self._nodes) >= self._configured + MAX_LEARNED:
                self._nodes.pop(self._configured)  # calls in progress keep it alive
            node = self._connect(address)
            self._nodes.append(node)
            return node

    def why(self) -> str:
        """What is known of the nodes, if none leads."""
        with self._lock:
            return "; ".join(f"{address}: {text}" for address, text in self._problems.items())

    def find(self, instead_of: Optional[Leader], timeout: float) -> Optional[Tuple[Node, Leader]]:
        """Asks all nodes once who leads, unless another leader than that is known by now.

        Raises InvalidParams if all that ever answered were nodes of other clusters, and the
        refusal if they refused this client, such as IllegalClient for its token.
        """
        began = now()
        with self._search:
            with self._lock:
                known = self._current
                fresh = self._searched > began  # another thread has asked meanwhile
            if known is not None and (fresh or instead_of is None or not known[1].is_the_same_as(instead_of)):
                return known
            if fresh or self._closed:
                return None
            found = self._ask_all(timeout)
            if found is None:
                self._replace_outdated()
            with self._lock:
                self._searched = now()
                refusal = None if self._met else self._refusal
                wrong = self._foreign and not self._met
            if refusal is not None:
                raise refusal
            if wrong:  # waiting is no use
                raise errors.InvalidParams("Client", f"no node of this cluster answers: {self.why()}")
            return found

    def _ask_all(self, timeout: float) -> Optional[Tuple[Node, Leader]]:
        answers: queue.SimpleQueue[Tuple[Node, float, Any]] = queue.SimpleQueue()
        asked: List[Any] = []

        def ask(node: Node) -> None:
            request = client_pb2.ServiceReadyRequest(contract_revision=CONTRACT_REVISION)
            begun = now()
            try:
                future = node.call(_wire.SERVICE_READY, request, timeout)
            except ValueError:  # the client was closed meanwhile
                return
            asked.append(future)
            future.add_done_callback(lambda done: answers.put((node, begun, done)))

        renewed = self._access.renew()  # a connection keeps the certificates that it began with
        with self._lock:
            if renewed:
                self._nodes = [self._connect(n.address) for n in self._nodes]  # calls in progress keep the others alive
            nodes = list(self._nodes)
            self._refusal = None
        for node in nodes:
            ask(node)
        deadline = now() + timeout
        try:
            while asked:
                node, begun, done = answers.get(timeout=max(deadline - now(), 0.001))
                asked.remove(done)
                found, hinted = self._take(node, begun, done)
                if found is not None:
                    return found
                if hinted is not None:
                    ask(hinted)
        except queue.Empty:
            pass
        finally:
            for future in asked:
                future.cancel()
        return None

    def _replace_outdated(self) -> None:
        """Connects anew to nodes whose connections have brought no leader for a while, if none is known."""
        with self._lock:
            at = now()
            ended = [n for n in self._replaced if n.replaced <= at - OUTDATED]
            self._replaced = [n for n in self._replaced if n not in ended]
            if self._current is None:
                for node in self._nodes:
                    if node.outdated is None:
                        node.outdated = at + OUTDATED * random.uniform(2 / 3, 4 / 3)
                outdated = [n for n in self._nodes if n.outdated is not None and n.outdated <= at]
                self._nodes = [self._connect(n.address) if n in outdated else n for n in self._nodes]
                for node in outdated:
                    node.replaced = at
                self._replaced += outdated
        for node in ended:
            node.close()

    def _take(self, node: Node, begun: float, done: Any) -> Tuple[Optional[Tuple[Node, Leader]], Optional[Node]]:
        """Takes an answer: the leader if it is from one, and a node to ask besides."""
        try:
            header = done.result().header
        except grpc.FutureCancelledError:
            return None, None
        except grpc.RpcError as failed:
            failure = _wire.judge(failed, _wire.SERVICE_READY)
            if failure.node_id:
                ours = self._ours(node, failure.cluster_id, str(failure.error), failure.error if failure.settles else None)
                return None, self.hint(failure.leader) if ours else None
            with self._lock:
                if failed.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._problems[node.address] = failure.error.detail
                else:  # which says less than an earlier problem
                    self._problems.setdefault(node.address, "no answer")
            return None, None
        if not self._ours(node, header.cluster_id, "") or not self.served(header.term, begun):
            return None, None
        leader = Leader(node.address, header.node_id, header.term)
        with self._lock:
            self._problems.clear()
            for other in self._nodes:
                other.outdated = None
            self._current = (node, leader)
            return self._current, None

    def _ours(self, node: Node, cluster_id: str, problem: str, refusal: Optional[errors.Error] = None) -> bool:
        """Whether a node that answered is one of this cluster."""
        ours = cluster_id == self._cluster_id
        with self._lock:
            self._met, self._foreign = self._met or (ours and refusal is None), self._foreign or not ours
            if ours:
                self._refusal = refusal or self._refusal
            self._problems[node.address] = problem if ours else f"it belongs to cluster {cluster_id!r}"
        return ours

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._current = None
            nodes, self._nodes, self._replaced = [*self._nodes, *self._replaced], [], []
        for node in nodes:
            node.close()


def check_addresses(addresses: Sequence[str]) -> None:
    """Raises InvalidParams unless all are host:port."""
    if not addresses:
        raise errors.InvalidParams("Client", "addresses is empty; give host:port of one node or more")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise errors.InvalidParams("Client", f"addresses has {address!r}, which is not host:port")
