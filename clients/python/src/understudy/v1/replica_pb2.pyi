from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
REPLICA_SELECTOR_ALL: ReplicaSelector
REPLICA_SELECTOR_DISK: ReplicaSelector
REPLICA_SELECTOR_LOCAL_DISK: ReplicaSelector
REPLICA_SELECTOR_MEMORY: ReplicaSelector
REPLICA_SELECTOR_UNSPECIFIED: ReplicaSelector
REPLICA_STATUS_COMPLETE: ReplicaStatus
REPLICA_STATUS_PROCESSING: ReplicaStatus
REPLICA_STATUS_UNSPECIFIED: ReplicaStatus

class DiskLocation(_message.Message):
    __slots__ = ["path"]
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class LocalDiskLocation(_message.Message):
    __slots__ = ["client_id", "endpoint"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    endpoint: str
    def __init__(self, client_id: _Optional[str] = ..., endpoint: _Optional[str] = ...) -> None: ...

class MemoryLocation(_message.Message):
    __slots__ = ["address", "endpoint", "protocol", "segment_name"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_NAME_FIELD_NUMBER: _ClassVar[int]
    address: int
    endpoint: str
    protocol: str
    segment_name: str
    def __init__(self, address: _Optional[int] = ..., endpoint: _Optional[str] = ..., protocol: _Optional[str] = ..., segment_name: _Optional[str] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ["disk", "local_disk", "memory", "status"]
    DISK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_DISK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    disk: DiskLocation
    local_disk: LocalDiskLocation
    memory: MemoryLocation
    status: ReplicaStatus
    def __init__(self, status: _Optional[_Union[ReplicaStatus, str]] = ..., memory: _Optional[_Union[MemoryLocation, _Mapping]] = ..., disk: _Optional[_Union[DiskLocation, _Mapping]] = ..., local_disk: _Optional[_Union[LocalDiskLocation, _Mapping]] = ...) -> None: ...

class ReplicaList(_message.Message):
    __slots__ = ["object_checksum", "object_id", "replicas", "size"]
    OBJECT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    object_checksum: int
    object_id: int
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    size: int
    def __init__(self, object_id: _Optional[int] = ..., size: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., object_checksum: _Optional[int] = ...) -> None: ...

class ReplicaStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ReplicaSelector(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
