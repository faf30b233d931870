"""What calls take and return."""

from __future__ import annotations

import enum
import functools
import time
import uuid
from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence, Tuple

from understudy.v1 import client_pb2, object_pb2, replica_pb2


def _clock() -> Callable[[], float]:
    """A monotonic clock in seconds; on Linux one that goes on while the machine is asleep."""
    boottime: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    return functools.partial(time.clock_gettime, boottime)


now = _clock()


@dataclass(frozen=True)
class Lease:
    """How long an object's bytes stay what they are, from before the request was sent.

    Bytes count as read only if the lease is valid afterwards.
    """

    ends: float = 0.0

    def remaining(self) -> float:
        """Seconds for which the lease still holds, 0 or less if it does not."""
        return self.ends - now()

    def valid(self) -> bool:
        return self.remaining() > 0


class ReplicaKind(enum.Enum):
    MEMORY = "memory"  # a mounted segment
    DISK = "disk"  # a file under the shared root_fs_dir
    LOCAL_DISK = "local_disk"  # a client's own SSD


class Selector(enum.Enum):
    """Chooses replicas of an object by kind."""

    ALL = "REPLICA_SELECTOR_UNSPECIFIED"  # memory and a client's SSD, but not DISK
    MEMORY = "REPLICA_SELECTOR_MEMORY"
    DISK = "REPLICA_SELECTOR_DISK"
    LOCAL_DISK = "REPLICA_SELECTOR_LOCAL_DISK"


class SoftPin(enum.Enum):
    """What a put does to the soft pin of its key."""

    KEEP = "SOFT_PIN_ACTION_UNSPECIFIED"  # a new object has none
    ENABLE = "SOFT_PIN_ACTION_ENABLE"
    DISABLE = "SOFT_PIN_ACTION_DISABLE"


@dataclass(frozen=True)
class Replica:
    """Where one copy of an object's bytes is."""

    kind: ReplicaKind
    endpoint: str = ""  # where the owner is reached; MEMORY and LOCAL_DISK
    address: int = 0  # of the first byte, in the owner's memory; MEMORY
    protocol: str = ""  # transfer protocol, for example "rdma"; MEMORY
    segment: str = ""  # name of the segment; MEMORY
    path: str = ""  # of the file; DISK
    client_id: str = ""  # the owner; LOCAL_DISK


@dataclass(frozen=True)
class Object:
    """What a reader needs of an object."""

    key: str
    id: int  # names this put of the key for ever
    size: int  # bytes; each replica has as many
    replicas: Tuple[Replica, ...]  # the readable ones
    checksum: Optional[int]  # as given at put_end
    lease: Lease


class KeyEventType(enum.Enum):
    """What happens to a key."""

    STORED = object_pb2.KV_EVENT_TYPE_STORED  # it came to a medium
    REMOVED = object_pb2.KV_EVENT_TYPE_REMOVED  # it left one: removed, put anew, unmounted
    EVICTED = object_pb2.KV_EVENT_TYPE_EVICTED  # it left one to make room


@dataclass(frozen=True)
class KeyPosition:
    """Up to where a follower of keys has seen all. The default is the beginning."""

    history: str = ""  # names the journal
    term: int = 0
    sequence: int = 0


@dataclass(frozen=True)
class KeyEvent:
    """It has changed where an object can be read. If from nowhere, its key is gone."""

    type: KeyEventType
    tenant: str
    key: str
    id: int  # names this put of the key for ever
    size: int  # bytes
    group: str  # empty for none
    in_memory: bool
    on_disk: bool  # of a host, or in a file


@dataclass(frozen=True)
class KeyEvents:
    """The next events. Without any, nothing has happened up to after."""

    resync: bool  # something may be missing: forget all keys; those that there are follow
    events: Tuple[KeyEvent, ...]
    after: KeyPosition  # to go on from behind these


@dataclass(frozen=True)
class Reservation:
    """Where the writer of an object is to put its bytes: all replicas are to be written."""

    key: str
    id: int
    size: int
    replicas: Tuple[Replica, ...]


@dataclass(frozen=True)
class PutConfig:
    """How objects are to be stored. The default is the server's."""

    replicas: int = 1  # wanted in memory, at most 64, on distinct segment names; one is enough
    preferred_segments: Sequence[str] = ()  # names of segments to try first
    soft_pin: SoftPin = SoftPin.KEEP
    soft_pin_ttl: Optional[float] = None  # seconds; None is the server's default
    hard_pin: bool = False  # never evict it
    same_node: bool = False  # batches: place later objects at the endpoint of the first
    data_type: int = 0  # 0 to 255, kept for readers
    host_id: str = ""  # of the writer's host
    upsert: bool = False  # replace what is under the key; it is unreadable until put_end

    def message(self) -> object_pb2.PutConfig:
        message = object_pb2.PutConfig(
            replica_num=self.replicas,
            preferred_segments=list(self.preferred_segments),
            soft_pin_action=self.soft_pin.value,
            hard_pin=self.hard_pin,
            prefer_alloc_in_same_node=self.same_node,
            data_type=self.data_type,
            host_id=self.host_id,
            upsert=self.upsert,
        )
        if self.soft_pin_ttl is not None:
            message.soft_pin_ttl_ms = round(self.soft_pin_ttl * 1000)
        return message


@dataclass(frozen=True)
class PutItem:
    """An object of a batch to put."""

    key: str
    size: int  # bytes, at least 1
    group: str = ""  # of objects that belong together


@dataclass(frozen=True)
class Segment:
    """Memory that a host lends to the store."""

    name: str  # the host's; replicas of an object lie on distinct names
    base: int  # address of the first byte, not 0
    size: int  # bytes, at least 1
    endpoint: str  # where the bytes are reached
    protocol: str = "tcp"  # transfer protocol
    host_id: str = ""  # stable identity of the host
    id: str = field(default_factory=lambda: str(uuid.uuid4()))  # of this mount, never used for another

    def message(self) -> client_pb2.Segment:
        return client_pb2.Segment(
            id=self.id,
            name=self.name,
            base=self.base,
            size=self.size,
            endpoint=self.endpoint,
            protocol=self.protocol,
            host_id=self.host_id,
        )

    def overlaps(self, other: Segment) -> bool:
        """Whether two segments are, in part, the same memory."""
        return (
            self.endpoint == other.endpoint
            and self.base < other.base + other.size
            and other.base < self.base + self.size
        )


@dataclass(frozen=True)
class Liveness:
    """What the server knows of a client."""

    need_remount: bool  # it has forgotten the client's segments
    ttl: float  # seconds for which a client may be silent


@dataclass(frozen=True)
class Leader:
    """The primary that serves."""

    address: str
    node_id: str
    term: int  # grows with each election; 0 without HA

    def is_the_same_as(self, other: Leader) -> bool:
        """Whether both are one node in one term, maybe at two of its addresses."""
        return (self.node_id, self.term) == (other.node_id, other.term)


def replicas_of(message: replica_pb2.ReplicaList) -> Tuple[Replica, ...]:
    """Kinds that this client does not know are left out."""
    found = []
    for r in message.replicas:
        kind = r.WhichOneof("location")
        if kind == "memory":
            m = r.memory
            found.append(Replica(ReplicaKind.MEMORY, m.endpoint, m.address, m.protocol, m.segment_name))
        elif kind == "disk":
            found.append(Replica(ReplicaKind.DISK, path=r.disk.path))
        elif kind == "local_disk":
            local = r.local_disk
            found.append(Replica(ReplicaKind.LOCAL_DISK, local.endpoint, client_id=local.client_id))
    return tuple(found)


def object_of(key: str, message: replica_pb2.ReplicaList, lease: Lease) -> Object:
    checksum = message.object_checksum if message.HasField("object_checksum") else None
    return Object(key, message.object_id, message.size, replicas_of(message), checksum, lease)


def reservation_of(key: str, message: replica_pb2.ReplicaList) -> Reservation:
    return Reservation(key, message.object_id, message.size, replicas_of(message))
