"""The client of a cluster."""

from __future__ import annotations

import secrets
import uuid
from types import TracebackType
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Type, Union

import grpc

from understudy import _access, _calls, _finder, _follow, _mounts, _wire, errors
from understudy.types import (
    KeyEvents,
    KeyPosition,
    Leader,
    Lease,
    Liveness,
    Object,
    PutConfig,
    PutItem,
    Reservation,
    Segment,
    Selector,
    object_of,
    reservation_of,
)
from understudy.v1 import client_pb2, object_pb2


class Client:
    """Makes calls of one cluster. It is safe for use by many threads.

    A call waits for timeout seconds, by default those of the client. Meanwhile it is
    repeated where that is safe: after a failover too, under the request id of its first
    attempt. When its time is up it raises errors.Unavailable if nothing was changed, and
    errors.Unresolved if something may have been. All calls raise errors.Error.

    Make a new client in a process that was forked: gRPC's connections do not survive that.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        cluster_id: str = "mooncake_cluster",
        client_id: Optional[str] = None,
        tenant: str = "",
        timeout: float = 30.0,
        ping_interval: float = 1.0,
        max_message_bytes: int = 16 << 20,
        tls: bool = False,
        tls_ca: Optional[_access.Path] = None,
        tls_cert: Optional[_access.Path] = None,
        tls_key: Optional[_access.Path] = None,
        token: Optional[str] = None,
        token_file: Optional[_access.Path] = None,
        credentials: Optional[grpc.ChannelCredentials] = None,
    ) -> None:
        """Connects to nobody yet.

        addresses are host:port of nodes: one that answers is enough to find the primary.
        client_id, a UUID, names the writer of puts and the owner of segments; by default
        it is a random one.

        tls_ca is a file with the authorities of the nodes' certificates, in PEM, for nodes
        with --tls-cert; tls=True takes the system's authorities. tls_cert and tls_key are
        files that say who this client is, to nodes with --tls-ca. The files are read here, and
        again when the primary is looked for and they have changed: open connections keep what
        they have. token says who this client is to nodes with --roles-tokens, which needs TLS;
        token_file is a file with the token alone, which calls read again, once a second at
        most. While it has no token, the one read before stays in use. By default gRPC is plain text. credentials, of gRPC's own, are in place of all these.
        Raises InvalidParams for what does not fit together, or cannot be read.
        """
        _finder.check_addresses(addresses)
        self.id = str(uuid.UUID(client_id)) if client_id else str(uuid.uuid4())
        self._tenant = tenant
        self._timeout = timeout
        access = _access.Access(credentials, tls, tls_ca, tls_cert, tls_key, token, token_file)
        self._finder = _finder.Finder(addresses, cluster_id, access, max_message_bytes)
        self._caller = _calls.Caller(self._finder, cluster_id)
        self._mounts = _mounts.Mounts(self._keep_mounted, ping_interval)
        self._instance = 1 + secrets.randbelow(2**63 - 1)  # tells this client from earlier ones with its id

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the pings and the calls in progress.

        Mounted segments stay mounted until the server misses the pings: unmount them first.
        """
        self._mounts.close()
        self._caller.close()
        self._mounts.join()

    # Reads.

    def exists(self, key: str, *, timeout: Optional[float] = None) -> bool:
        """Whether a key has a readable replica. If so its lease is extended."""
        request = object_pb2.ExistKeyRequest(tenant=self._tenant, key=key)
        return bool(self._ask(_wire.EXIST_KEY, request, timeout)[0].exists)

    def batch_exists(self, keys: Sequence[str], *, timeout: Optional[float] = None) -> List[Union[bool, errors.Error]]:
        """exists for 1 to 10,000 keys, in their order."""
        request = object_pb2.BatchExistKeyRequest(tenant=self._tenant, keys=keys)
        answer, _ = self._ask(_wire.BATCH_EXIST_KEY, request, timeout, lambda a: len(a.exists) == len(keys))
        found: List[Union[bool, errors.Error]] = list(answer.exists)
        for i, error in _wire.item_errors(answer.errors, _wire.BATCH_EXIST_KEY.name):
            found[i] = error
        return found

    def get(self, key: str, *, timeout: Optional[float] = None) -> Object:
        """Where an object's bytes are, and for how long they stay what they are.

        Raises ObjectNotFound; ReplicaNotReady if nothing is readable yet.
        """
        request = object_pb2.GetReplicaListRequest(tenant=self._tenant, key=key)
        answer, sent = self._ask(_wire.GET, request, timeout, lambda a: a.object.object_id != 0)
        return object_of(key, answer.object, _lease(sent, answer.lease_ttl_ms))

    def batch_get(self, keys: Sequence[str], *, timeout: Optional[float] = None) -> List[Union[Object, errors.Error]]:
        """get for 1 to 10,000 keys, in their order."""
        request = object_pb2.BatchGetReplicaListRequest(tenant=self._tenant, keys=keys)
        answer, sent = self._ask(_wire.BATCH_GET, request, timeout, lambda a: len(a.objects) == len(keys))
        lease = _lease(sent, answer.lease_ttl_ms)
        found: List[Union[Object, errors.Error]] = [
            object_of(key, message, lease) for key, message in zip(keys, answer.objects)
        ]
        for i, error in _wire.item_errors(answer.errors, _wire.BATCH_GET.name):
            found[i] = error
        return found

    def renew(self, held: Object, *, timeout: Optional[float] = None) -> Lease:
        """Extends the lease of an object that a reader goes on reading.

        Raises ObjectNotFound if the key has no object any more, or another one: then the
        bytes read so far count only if the old lease is still valid.
        """
        found = self.get(held.key, timeout=timeout)
        if found.id != held.id:
            raise errors.ObjectNotFound("renew", f"the key {held.key!r} has another object now")
        return found.lease

    def key_events(self, after: KeyPosition = KeyPosition()) -> Iterator[KeyEvents]:
        """Follows which keys of all tenants are stored, removed and evicted, in their order.

        after is that of the last events that the caller has dealt with; by default it begins
        with all keys. It goes on with the next primary after a failover; then some events may
        come twice, and none is left out. Whoever was away for too long, or reads too slowly,
        gets a resync. close() ends it, with errors.Unavailable, and so does leaving the loop.

        Raises NotSupported unless the nodes run with --enable_kv_events.
        """
        return _follow.follow(self._caller, self._finder, after)

    # Puts.

    def put_start(
        self, key: str, size: int, config: PutConfig = PutConfig(), *, group: str = "", timeout: Optional[float] = None
    ) -> Reservation:
        """Reserves memory for an object. Write its bytes, then put_end or put_revoke.

        Raises ObjectExists for a readable object, or a reservation that is not 30 s old;
        NoAvailableHandle if no segment has room.
        """
        request = object_pb2.PutStartRequest(
            tenant=self._tenant,
            request_id=_calls.new_request_id(),
            client_id=self.id,
            key=key,
            size=size,
            group_id=group,
            config=config.message(),
        )
        answer, _ = self._ask(_wire.PUT_START, request, timeout, lambda a: a.object.object_id != 0)
        return reservation_of(key, answer.object)

    def put_end(
        self,
        put: Reservation,
        *,
        selector: Selector = Selector.ALL,
        checksum: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Makes the replicas of a put readable. If they are already, that is no error.

        Raises ObjectNotFound if the put is gone; IllegalClient for another client's put.
        """
        request = object_pb2.PutEndRequest(
            tenant=self._tenant,
            request_id=_calls.new_request_id(),
            client_id=self.id,
            key=put.key,
            object_id=put.id,
            selector=selector.value,
            object_checksum=checksum,
        )
        self._ask(_wire.PUT_END, request, timeout)

    def put_revoke(
        self, put: Reservation, *, selector: Selector = Selector.ALL, timeout: Optional[float] = None
    ) -> None:
        """Gives up a put in progress. Raises as put_end; InvalidWrite if it is readable already."""
        request = object_pb2.PutRevokeRequest(
            tenant=self._tenant,
            request_id=_calls.new_request_id(),
            client_id=self.id,
            key=put.key,
            object_id=put.id,
            selector=selector.value,
        )
        self._ask(_wire.PUT_REVOKE, request, timeout)

    def batch_put_start(
        self, items: Sequence[PutItem], config: PutConfig = PutConfig(), *, timeout: Optional[float] = None
    ) -> List[Union[Reservation, errors.Error]]:
        """put_start for 1 to 10,000 objects, in their order."""
        wanted = [object_pb2.PutStartItem(key=i.key, size=i.size, group_id=i.group) for i in items]
        found: List[Optional[Reservation]] = [None] * len(items)

        def request(request_id: int, run: Sequence[Any]) -> object_pb2.BatchPutStartRequest:
            return object_pb2.BatchPutStartRequest(
                tenant=self._tenant, request_id=request_id, client_id=self.id, items=run, config=config.message()
            )

        def take(begin: int, answer: object_pb2.BatchPutStartResponse, size: int) -> bool:
            for i, message in enumerate(answer.objects):
                if message.object_id != 0:
                    found[begin + i] = reservation_of(items[begin + i].key, message)
            return len(answer.objects) == size

        failed = self._caller.change_all(_wire.BATCH_PUT_START, wanted, self._seconds(timeout), request, take)
        return [_one_of(*pair) for pair in zip(found, failed)]

    def batch_put_end(
        self, puts: Sequence[Reservation], *, selector: Selector = Selector.ALL, timeout: Optional[float] = None
    ) -> List[Optional[errors.Error]]:
        """put_end for 1 to 10,000 puts. Returns what came of each, None for success."""
        items = [object_pb2.PutEndItem(key=p.key, object_id=p.id) for p in puts]

        def request(request_id: int, run: Sequence[Any]) -> object_pb2.BatchPutEndRequest:
            return object_pb2.BatchPutEndRequest(
                tenant=self._tenant, request_id=request_id, client_id=self.id, items=run, selector=selector.value
            )

        return self._caller.change_all(_wire.BATCH_PUT_END, items, self._seconds(timeout), request, _acknowledged)

    def batch_put_revoke(
        self, puts: Sequence[Reservation], *, selector: Selector = Selector.ALL, timeout: Optional[float] = None
    ) -> List[Optional[errors.Error]]:
        """put_revoke for 1 to 10,000 puts, as batch_put_end."""
        items = [object_pb2.PutRevokeItem(key=p.key, object_id=p.id) for p in puts]

        def request(request_id: int, run: Sequence[Any]) -> object_pb2.BatchPutRevokeRequest:
            return object_pb2.BatchPutRevokeRequest(
                tenant=self._tenant, request_id=request_id, client_id=self.id, items=run, selector=selector.value
            )

        return self._caller.change_all(_wire.BATCH_PUT_REVOKE, items, self._seconds(timeout), request, _acknowledged)

    # Removals.

    def remove(self, key: str, *, force: bool = False, timeout: Optional[float] = None) -> None:
        """Removes an object; with force also one that a reader holds a lease on.

        Raises ObjectNotFound; ObjectHasLease unless forced; ReplicaNotReady; ObjectHasTask.
        """
        request = object_pb2.RemoveRequest(
            tenant=self._tenant, request_id=_calls.new_request_id(), key=key, force=force
        )
        self._ask(_wire.REMOVE, request, timeout)

    def batch_remove(
        self, keys: Sequence[str], *, force: bool = False, timeout: Optional[float] = None
    ) -> List[Optional[errors.Error]]:
        """remove for 1 to 10,000 keys. Returns what came of each, None for success."""

        def request(request_id: int, run: Sequence[Any]) -> object_pb2.BatchRemoveRequest:
            return object_pb2.BatchRemoveRequest(tenant=self._tenant, request_id=request_id, keys=run, force=force)

        return self._caller.change_all(_wire.BATCH_REMOVE, keys, self._seconds(timeout), request, _acknowledged)

    def remove_by_regex(self, regex: str, *, force: bool = False, timeout: Optional[float] = None) -> int:
        """Removes all objects in whose keys an expression (RE2) is found, and returns how many.

        It keeps what remove would refuse, and does not return how many those are: ask remove for
        the reason. It is not repeated: Unresolved if an answer was lost.
        """
        request = object_pb2.RemoveByRegexRequest(
            tenant=self._tenant, request_id=_calls.new_request_id(), regex=regex, force=force
        )
        return int(self._ask(_wire.REMOVE_BY_REGEX, request, timeout)[0].removed)

    def remove_all(self, *, force: bool = False, timeout: Optional[float] = None) -> int:
        """Removes all objects of the client's tenant, as remove_by_regex."""
        request = object_pb2.RemoveAllRequest(tenant=self._tenant, request_id=_calls.new_request_id(), force=force)
        return int(self._ask(_wire.REMOVE_ALL, request, timeout)[0].removed)

    # Hosts.

    def mount_segment(self, segment: Segment, *, timeout: Optional[float] = None) -> None:
        """Lends memory to the store until unmount_segment.

        From the first one on, this client pings the server, and mounts its segments again
        when the server has forgotten them. Segments on the same memory are unmounted.
        Raises SegmentExists for an id that is mounted elsewhere.
        """
        request = client_pb2.MountSegmentRequest(
            client_id=self.id,
            request_id=_calls.new_request_id(),
            segment=segment.message(),
            instance_id=self._instance,
        )
        with self._mounts.alone(_wire.MOUNT.name, self._seconds(timeout)) as left:
            self._ask(_wire.MOUNT, request, left)
            self._mounts.add(segment)

    def unmount_segment(self, segment_id: str, *, timeout: Optional[float] = None) -> None:
        """Takes memory back: its replicas are unreadable at once. An unknown segment is no error.

        Whatever comes of the call, the client does not mount the segment again; but a mount that
        is under way may, so repeat a call that failed.
        """
        request = client_pb2.UnmountSegmentRequest(
            client_id=self.id, request_id=_calls.new_request_id(), segment_id=segment_id
        )
        self._mounts.remove(segment_id)  # also if this call does not get its turn
        advice = ", and a mount under way may still mount this one: repeat the unmount"
        with self._mounts.alone(_wire.UNMOUNT.name, self._seconds(timeout), advice) as left:
            self._mounts.remove(segment_id)
            self._ask(_wire.UNMOUNT, request, left)

    def remount_segments(self, *, timeout: Optional[float] = None) -> None:
        """Mounts all segments again. A client does so by itself when a ping says that it is needed."""
        with self._mounts.alone(_wire.REMOUNT.name, self._seconds(timeout)) as left:
            request = client_pb2.ReMountSegmentRequest(
                client_id=self.id,
                request_id=_calls.new_request_id(),
                segments=[s.message() for s in self._mounts.all()],
                instance_id=self._instance,
            )
            self._ask(_wire.REMOUNT, request, left)

    def ping(self, *, timeout: Optional[float] = None) -> Liveness:
        """Says that this client is alive. Clients with mounted segments do so by themselves."""
        answer, _ = self._ask(_wire.PING, client_pb2.PingRequest(client_id=self.id), timeout)
        return Liveness(answer.status == client_pb2.CLIENT_STATUS_NEED_REMOUNT, answer.client_ttl_ms / 1000)

    def leader(self, *, timeout: Optional[float] = None) -> Leader:
        """The primary, after it has answered."""
        request = client_pb2.ServiceReadyRequest(contract_revision=_finder.CONTRACT_REVISION)
        answer, _ = self._ask(_wire.SERVICE_READY, request, timeout)
        found = self._finder.current()
        address = found[1].address if found is not None else ""
        return Leader(address, answer.header.node_id, answer.header.term)

    def _keep_mounted(self, again: bool) -> None:
        """Pings, and mounts all segments again if the server has forgotten them."""
        if self.ping().need_remount or again:
            self.remount_segments()

    def _seconds(self, timeout: Optional[float]) -> float:
        return self._timeout if timeout is None else timeout

    def _ask(
        self, operation: _wire.Operation[Any], request: Any, timeout: Optional[float], whole: Any = None
    ) -> Tuple[Any, float]:
        return self._caller.call(operation, request, self._seconds(timeout), whole)


def _lease(sent: float, ttl_ms: int) -> Lease:
    return Lease(sent + ttl_ms / 1000)


def _one_of(found: Optional[Reservation], failed: Optional[errors.Error]) -> Union[Reservation, errors.Error]:
    """The outcome of an item of batch_put_start."""
    if failed is not None:
        return failed
    return found or errors.Internal(_wire.BATCH_PUT_START.name, "the answer has no reservation")


def _acknowledged(_begin: int, answer: Any, size: int) -> bool:
    """Whether an answer that only counts its successes is whole."""
    return bool(answer.succeeded + len(answer.errors) == size)
