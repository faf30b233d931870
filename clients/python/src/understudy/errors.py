"""How calls fail: one exception for each kind, with the names of the Go client.

Catch a kind (except ObjectNotFound) or all of them (except Error). number is the
one of Mooncake's C++ master. retryable says that the same call may succeed later
although nothing is wrong with it.
"""

from __future__ import annotations

from typing import ClassVar, Dict, Type


class Error(Exception):
    """A call of the cluster failed."""

    name: ClassVar[str] = "INTERNAL_ERROR"
    number: ClassVar[int] = -1
    retryable: ClassVar[bool] = False

    def __init__(self, operation: str, detail: str = "") -> None:
        super().__init__(operation, detail)
        self.operation = operation
        self.detail = detail

    def __str__(self) -> str:
        text = f"{self.operation}: {self.name} ({self.number})"
        return f"{text}: {self.detail}" if self.detail else text


class Internal(Error):
    """A defect of the server."""

    name, number, retryable = "INTERNAL_ERROR", -1, False


class SegmentNotFound(Error):
    """No segment of that id is mounted."""

    name, number, retryable = "SEGMENT_NOT_FOUND", -101, False


class SegmentExists(Error):
    """A segment of that id is mounted with other properties."""

    name, number, retryable = "SEGMENT_ALREADY_EXISTS", -102, False


class ClientNotFound(Error):
    """The client has nothing mounted."""

    name, number, retryable = "CLIENT_NOT_FOUND", -103, False


class NoAvailableHandle(Error):
    """No segment has room; retry after eviction."""

    name, number, retryable = "NO_AVAILABLE_HANDLE", -200, True


class InvalidVersion(Error):
    """A version that the server does not speak."""

    name, number, retryable = "INVALID_VERSION", -300, False


class InvalidKey(Error):
    """An empty or oversized key."""

    name, number, retryable = "INVALID_KEY", -400, False


class InvalidParams(Error):
    """An argument out of its range."""

    name, number, retryable = "INVALID_PARAMS", -600, False


class IllegalClient(Error):
    """The put belongs to another client."""

    name, number, retryable = "ILLEGAL_CLIENT", -601, False


class InvalidWrite(Error):
    """The object is not in a state for this write."""

    name, number, retryable = "INVALID_WRITE", -700, False


class InvalidReplica(Error):
    """The object has no replica of that kind."""

    name, number, retryable = "INVALID_REPLICA", -702, False


class ReplicaNotReady(Error):
    """The object exists, but no replica is readable yet."""

    name, number, retryable = "REPLICA_IS_NOT_READY", -703, True


class ObjectNotFound(Error):
    """No object under that key."""

    name, number, retryable = "OBJECT_NOT_FOUND", -704, False


class ObjectExists(Error):
    """An object or a live reservation is under that key."""

    name, number, retryable = "OBJECT_ALREADY_EXISTS", -705, False


class ObjectHasLease(Error):
    """A reader holds a lease."""

    name, number, retryable = "OBJECT_HAS_LEASE", -706, True


class ObjectHasTask(Error):
    """A copy, a move or a promotion of the object is under way."""

    name, number, retryable = "OBJECT_HAS_REPLICATION_TASK", -708, True


class ObjectNoTask(Error):
    """No copy, move or promotion of the object is under way."""

    name, number, retryable = "OBJECT_NO_REPLICATION_TASK", -709, False


class ReplicaNotFound(Error):
    """The object has no replica on that segment."""

    name, number, retryable = "REPLICA_NOT_FOUND", -710, False


class ReplicaExists(Error):
    """The object has a replica on that segment already."""

    name, number, retryable = "REPLICA_ALREADY_EXISTS", -711, False


class ReplicaGone(Error):
    """The replica was removed meanwhile."""

    name, number, retryable = "REPLICA_IS_GONE", -712, False


class ReplicaBusy(Error):
    """A put of the replicas is in progress."""

    name, number, retryable = "OBJECT_REPLICA_BUSY", -714, True


class TaskNotFound(Error):
    """No task of that id."""

    name, number, retryable = "TASK_NOT_FOUND", -1400, False


class TaskLimit(Error):
    """Too many tasks are pending."""

    name, number, retryable = "TASK_PENDING_LIMIT_EXCEEDED", -1401, True


class Unavailable(Error):
    """It cannot be done now, and nothing has changed."""

    name, number, retryable = "UNAVAILABLE_IN_CURRENT_STATUS", -1010, True


class NotLeader(Error):
    """The node does not serve. The client asks the next one; callers do not see it."""

    name, number, retryable = "UNAVAILABLE_IN_CURRENT_MODE", -1011, True


class NotSupported(Error):
    """A call that the server does not offer."""

    name, number, retryable = "NOT_SUPPORTED", -1012, False


class TenantQuotaExceeded(Error):
    """The tenant's quota is used up."""

    name, number, retryable = "TENANT_QUOTA_EXCEEDED", -1700, False


class TenantNotRegistered(Error):
    """The tenant has no quota, so it may not write."""

    name, number, retryable = "TENANT_NOT_REGISTERED", -1701, False


class TenantNotEmpty(Error):
    """The tenant still owns objects."""

    name, number, retryable = "TENANT_NOT_EMPTY", -1702, False


class Unresolved(Error):
    """The call may or may not have been applied: look, or repeat it."""

    name, number, retryable = "RPC_TIMEOUT", -901, False


class JobNotFound(Error):
    """No drain job of that id."""

    name, number, retryable = "JOB_NOT_FOUND", -1402, False


class OffloadDisabled(Error):
    """This master does not copy objects to SSDs."""

    name, number, retryable = "UNABLE_OFFLOAD", -1300, False


_BY_NAME: Dict[str, Type[Error]] = {kind.name: kind for kind in Error.__subclasses__()}


def by_name(name: str) -> Type[Error]:
    """Returns the kind of a name such as OBJECT_NOT_FOUND, Internal for an unknown one."""
    return _BY_NAME.get(name, Internal)
