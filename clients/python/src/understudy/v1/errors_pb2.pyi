from understudy.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
KIND_CLIENT_NOT_FOUND: Kind
KIND_ILLEGAL_CLIENT: Kind
KIND_INTERNAL_ERROR: Kind
KIND_INVALID_KEY: Kind
KIND_INVALID_PARAMS: Kind
KIND_INVALID_REPLICA: Kind
KIND_INVALID_VERSION: Kind
KIND_INVALID_WRITE: Kind
KIND_JOB_NOT_FOUND: Kind
KIND_NOT_SUPPORTED: Kind
KIND_NO_AVAILABLE_HANDLE: Kind
KIND_OBJECT_ALREADY_EXISTS: Kind
KIND_OBJECT_HAS_LEASE: Kind
KIND_OBJECT_HAS_REPLICATION_TASK: Kind
KIND_OBJECT_NOT_FOUND: Kind
KIND_OBJECT_NO_REPLICATION_TASK: Kind
KIND_OBJECT_REPLICA_BUSY: Kind
KIND_REPLICA_ALREADY_EXISTS: Kind
KIND_REPLICA_IS_GONE: Kind
KIND_REPLICA_IS_NOT_READY: Kind
KIND_REPLICA_NOT_FOUND: Kind
KIND_RPC_TIMEOUT: Kind
KIND_SEGMENT_ALREADY_EXISTS: Kind
KIND_SEGMENT_NOT_FOUND: Kind
KIND_TASK_NOT_FOUND: Kind
KIND_TASK_PENDING_LIMIT_EXCEEDED: Kind
KIND_TENANT_NOT_EMPTY: Kind
KIND_TENANT_NOT_REGISTERED: Kind
KIND_TENANT_QUOTA_EXCEEDED: Kind
KIND_UNABLE_OFFLOAD: Kind
KIND_UNAVAILABLE_IN_CURRENT_MODE: Kind
KIND_UNAVAILABLE_IN_CURRENT_STATUS: Kind
KIND_UNSPECIFIED: Kind

class ErrorDetail(_message.Message):
    __slots__ = ["header", "kind", "leader_address", "number", "operation"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    kind: Kind
    leader_address: str
    number: int
    operation: str
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., kind: _Optional[_Union[Kind, str]] = ..., number: _Optional[int] = ..., operation: _Optional[str] = ..., leader_address: _Optional[str] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ["index", "kind", "message"]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    kind: Kind
    message: str
    def __init__(self, index: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
