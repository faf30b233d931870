"""From gRPC to errors: what came of one attempt, and what to do next."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Generic, List, Optional, Tuple, Type, TypeVar

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

from understudy import errors
from understudy.v1 import client_pb2, errors_pb2, object_pb2

R = TypeVar("R")


class Repeat(enum.Enum):
    """When a call may be made again although an attempt may have been applied."""

    ALWAYS = 1  # it changes nothing
    SAME_TWICE = 2  # a repeat with its request id does nothing that the first attempt has not done
    BY_REQUEST_ID = 3  # nodes know a repeat by its request id alone, which they forget
    NEVER = 4  # a repeat might change something else


@dataclass(frozen=True)
class Operation(Generic[R]):
    """A call of the contract."""

    name: str
    method: str
    response: Type[R]
    repeat: Repeat

    @property
    def mutates(self) -> bool:
        return self.repeat is not Repeat.ALWAYS

    def unless(self, condition: bool) -> Operation[R]:
        """The operation, but not to be repeated unless a condition holds."""
        return self if condition else Operation(self.name, self.method, self.response, Repeat.NEVER)


def _objects(name: str, response: Type[R], repeat: Repeat) -> Operation[R]:
    return Operation(name, f"/understudy.v1.ObjectService/{name}", response, repeat)


def _clients(name: str, response: Type[R], repeat: Repeat) -> Operation[R]:
    return Operation(name, f"/understudy.v1.ClientService/{name}", response, repeat)


# What may be repeated stands in common.proto.
EXIST_KEY = _objects("ExistKey", object_pb2.ExistKeyResponse, Repeat.ALWAYS)
BATCH_EXIST_KEY = _objects("BatchExistKey", object_pb2.BatchExistKeyResponse, Repeat.ALWAYS)
GET = _objects("GetReplicaList", object_pb2.GetReplicaListResponse, Repeat.ALWAYS)
BATCH_GET = _objects("BatchGetReplicaList", object_pb2.BatchGetReplicaListResponse, Repeat.ALWAYS)
PUT_START = _objects("PutStart", object_pb2.PutStartResponse, Repeat.BY_REQUEST_ID)
PUT_END = _objects("PutEnd", object_pb2.PutEndResponse, Repeat.SAME_TWICE)
PUT_REVOKE = _objects("PutRevoke", object_pb2.PutRevokeResponse, Repeat.BY_REQUEST_ID)
BATCH_PUT_START = _objects("BatchPutStart", object_pb2.BatchPutStartResponse, Repeat.BY_REQUEST_ID)
BATCH_PUT_END = _objects("BatchPutEnd", object_pb2.BatchPutEndResponse, Repeat.SAME_TWICE)
BATCH_PUT_REVOKE = _objects("BatchPutRevoke", object_pb2.BatchPutRevokeResponse, Repeat.BY_REQUEST_ID)
REMOVE = _objects("Remove", object_pb2.RemoveResponse, Repeat.BY_REQUEST_ID)
BATCH_REMOVE = _objects("BatchRemove", object_pb2.BatchRemoveResponse, Repeat.BY_REQUEST_ID)
REMOVE_BY_REGEX = _objects("RemoveByRegex", object_pb2.RemoveByRegexResponse, Repeat.NEVER)
KEY_EVENTS = _objects("KvEvents", object_pb2.KvEventsResponse, Repeat.ALWAYS)
REMOVE_ALL = _objects("RemoveAll", object_pb2.RemoveAllResponse, Repeat.NEVER)
SERVICE_READY = _clients("ServiceReady", client_pb2.ServiceReadyResponse, Repeat.ALWAYS)
PING = _clients("Ping", client_pb2.PingResponse, Repeat.ALWAYS)
MOUNT = _clients("MountSegment", client_pb2.MountSegmentResponse, Repeat.SAME_TWICE)
REMOUNT = _clients("ReMountSegment", client_pb2.ReMountSegmentResponse, Repeat.SAME_TWICE)
UNMOUNT = _clients("UnmountSegment", client_pb2.UnmountSegmentResponse, Repeat.SAME_TWICE)


@dataclass(eq=False)
class Failure(Exception):
    """An attempt without an answer to pass on."""

    error: errors.Error
    repeat: bool = False  # another attempt may bring an answer; otherwise error is the end
    open: bool = False  # this attempt may have been applied
    drop: bool = False  # the leader must be found again first
    settles: bool = False  # error is the cluster's answer, and covers earlier attempts too
    term: int = 0
    cluster_id: str = ""
    node_id: str = ""  # empty: no node has answered
    leader: str = ""  # the address of the leader, as the node knows it


def of_kind(kind: int, operation: str, detail: str) -> errors.Error:
    """The error that a kind of the contract stands for."""
    known = kind in errors_pb2.Kind.values()
    name = errors_pb2.Kind.Name(kind)[len("KIND_") :] if known else ""
    return errors.by_name(name)(operation, detail)


def judge_kind(error: errors.Error) -> Failure:
    """What an answered error means for the call."""
    if isinstance(error, errors.NotLeader):
        return Failure(error, repeat=True, drop=True)
    if isinstance(error, errors.Unavailable):
        return Failure(error, repeat=True)
    if isinstance(error, errors.Unresolved):
        return Failure(error, repeat=True, open=True)
    return Failure(error, settles=True)


def item_errors(items: Any, operation: str) -> List[Tuple[int, errors.Error]]:
    return [(item.index, of_kind(item.kind, operation, item.message)) for item in items]


_LOST = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
)
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
# How gRPC begins what it says of a call for which there was no connection.
_NOT_SENT = ("failed to connect", "connections to all backends failing")


def judge(failed: grpc.RpcError, operation: Operation[Any]) -> Failure:
    """What a failed attempt means for the call."""
    detail = _detail_of(failed)
    if detail is not None:
        error = of_kind(detail.kind, detail.operation or operation.name, failed.details() or "")
        failure = judge_kind(error)
        failure.term, failure.leader = detail.header.term, detail.leader_address
        failure.cluster_id, failure.node_id = detail.header.cluster_id, detail.header.node_id
        return failure
    code, text = failed.code(), failed.details() or ""
    if code in _LOST:
        sent = not text.startswith(_NOT_SENT)
        drop = code is not grpc.StatusCode.DEADLINE_EXCEEDED
        error = errors.Unresolved(operation.name, text)
        return Failure(error, repeat=True, open=sent and operation.mutates, drop=drop)
    too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED or code is grpc.StatusCode.DATA_LOSS
    if too_large and operation.mutates:
        return Failure(errors.Unresolved(operation.name, f"{text}; the call may have been applied: look"))
    if code in _REFUSED:
        return Failure(errors.InvalidParams(operation.name, text))
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Failure(errors.NotSupported(operation.name, text))
    return Failure(errors.Internal(operation.name, text))


def _status_class() -> Any:
    """google.rpc.Status, under a name of our own: its package need not be installed."""
    file = descriptor_pb2.FileDescriptorProto(
        name="understudy/status.proto",
        package="understudy.internal",
        syntax="proto3",
        dependency=[any_pb2.DESCRIPTOR.name],
    )
    message = file.message_type.add(name="Status")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="code", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="message", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    message.field.add(
        name="details",
        number=3,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Any",
        label=kinds.LABEL_REPEATED,
    )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("understudy.internal.Status")
    if hasattr(message_factory, "GetMessageClass"):  # from protobuf 4.22 on
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


_Status = _status_class()


def _detail_of(failed: grpc.RpcError) -> Optional[errors_pb2.ErrorDetail]:
    """What a node of ours says of a failed call, None if none has spoken."""
    for key, value in failed.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for packed in _Status.FromString(value).details:
            detail = errors_pb2.ErrorDetail()
            if packed.Unpack(detail):
                return detail
    return None
