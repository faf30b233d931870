from understudy.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

CLIENT_STATUS_NEED_REMOUNT: ClientStatus
CLIENT_STATUS_OK: ClientStatus
CLIENT_STATUS_UNSPECIFIED: ClientStatus
DESCRIPTOR: _descriptor.FileDescriptor

class BatchQueryIpRequest(_message.Message):
    __slots__ = ["client_ids"]
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class BatchQueryIpResponse(_message.Message):
    __slots__ = ["clients", "header"]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[ClientIps]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., clients: _Optional[_Iterable[_Union[ClientIps, _Mapping]]] = ...) -> None: ...

class ClientIps(_message.Message):
    __slots__ = ["client_id", "ips"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    IPS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    ips: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client_id: _Optional[str] = ..., ips: _Optional[_Iterable[str]] = ...) -> None: ...

class GetFsdirRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetFsdirResponse(_message.Message):
    __slots__ = ["fsdir", "header"]
    FSDIR_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    fsdir: str
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., fsdir: _Optional[str] = ...) -> None: ...

class GetStorageConfigRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetStorageConfigResponse(_message.Message):
    __slots__ = ["enable_disk_eviction", "fsdir", "header", "quota_bytes"]
    ENABLE_DISK_EVICTION_FIELD_NUMBER: _ClassVar[int]
    FSDIR_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    QUOTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    enable_disk_eviction: bool
    fsdir: str
    header: _common_pb2.ResponseHeader
    quota_bytes: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., fsdir: _Optional[str] = ..., enable_disk_eviction: bool = ..., quota_bytes: _Optional[int] = ...) -> None: ...

class MountLocalDiskSegmentRequest(_message.Message):
    __slots__ = ["client_id", "enable_offloading", "request_id"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENABLE_OFFLOADING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    enable_offloading: bool
    request_id: int
    def __init__(self, client_id: _Optional[str] = ..., request_id: _Optional[int] = ..., enable_offloading: bool = ...) -> None: ...

class MountLocalDiskSegmentResponse(_message.Message):
    __slots__ = ["header"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class MountSegmentRequest(_message.Message):
    __slots__ = ["client_id", "instance_id", "request_id", "segment"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    instance_id: int
    request_id: int
    segment: Segment
    def __init__(self, client_id: _Optional[str] = ..., request_id: _Optional[int] = ..., segment: _Optional[_Union[Segment, _Mapping]] = ..., instance_id: _Optional[int] = ...) -> None: ...

class MountSegmentResponse(_message.Message):
    __slots__ = ["header", "memory_held_ms"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_HELD_MS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    memory_held_ms: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., memory_held_ms: _Optional[int] = ...) -> None: ...

class NotifyOffloadSuccessRequest(_message.Message):
    __slots__ = ["client_id", "objects", "request_id"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    objects: _containers.RepeatedCompositeFieldContainer[OffloadedObject]
    request_id: int
    def __init__(self, client_id: _Optional[str] = ..., request_id: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[OffloadedObject, _Mapping]]] = ...) -> None: ...

class NotifyOffloadSuccessResponse(_message.Message):
    __slots__ = ["header"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class OffloadObjectHeartbeatRequest(_message.Message):
    __slots__ = ["client_id", "enable_offloading", "request_id"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENABLE_OFFLOADING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    enable_offloading: bool
    request_id: int
    def __init__(self, client_id: _Optional[str] = ..., request_id: _Optional[int] = ..., enable_offloading: bool = ...) -> None: ...

class OffloadObjectHeartbeatResponse(_message.Message):
    __slots__ = ["header", "tasks"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    tasks: _containers.RepeatedCompositeFieldContainer[OffloadTask]
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., tasks: _Optional[_Iterable[_Union[OffloadTask, _Mapping]]] = ...) -> None: ...

class OffloadTask(_message.Message):
    __slots__ = ["key", "size", "tenant"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    key: str
    size: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., key: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class OffloadedObject(_message.Message):
    __slots__ = ["bucket", "data_size", "endpoint", "key_size", "offset", "refused", "task"]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    DATA_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    KEY_SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    bucket: int
    data_size: int
    endpoint: str
    key_size: int
    offset: int
    refused: bool
    task: OffloadTask
    def __init__(self, task: _Optional[_Union[OffloadTask, _Mapping]] = ..., refused: bool = ..., bucket: _Optional[int] = ..., offset: _Optional[int] = ..., key_size: _Optional[int] = ..., data_size: _Optional[int] = ..., endpoint: _Optional[str] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ["client_id"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ["client_ttl_ms", "header", "status"]
    CLIENT_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    client_ttl_ms: int
    header: _common_pb2.ResponseHeader
    status: ClientStatus
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., status: _Optional[_Union[ClientStatus, str]] = ..., client_ttl_ms: _Optional[int] = ...) -> None: ...

class ReMountSegmentRequest(_message.Message):
    __slots__ = ["client_id", "instance_id", "request_id", "segments"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    instance_id: int
    request_id: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, client_id: _Optional[str] = ..., request_id: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., instance_id: _Optional[int] = ...) -> None: ...

class ReMountSegmentResponse(_message.Message):
    __slots__ = ["header"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ["base", "endpoint", "host_id", "id", "name", "protocol", "size"]
    BASE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    base: int
    endpoint: str
    host_id: str
    id: str
    name: str
    protocol: str
    size: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., base: _Optional[int] = ..., size: _Optional[int] = ..., endpoint: _Optional[str] = ..., protocol: _Optional[str] = ..., host_id: _Optional[str] = ...) -> None: ...

class ServiceReadyRequest(_message.Message):
    __slots__ = ["client_version", "contract_revision"]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_REVISION_FIELD_NUMBER: _ClassVar[int]
    client_version: str
    contract_revision: int
    def __init__(self, client_version: _Optional[str] = ..., contract_revision: _Optional[int] = ...) -> None: ...

class ServiceReadyResponse(_message.Message):
    __slots__ = ["contract_revision", "header", "server_version"]
    CONTRACT_REVISION_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    contract_revision: int
    header: _common_pb2.ResponseHeader
    server_version: str
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., server_version: _Optional[str] = ..., contract_revision: _Optional[int] = ...) -> None: ...

class UnmountSegmentRequest(_message.Message):
    __slots__ = ["client_id", "request_id", "segment_id"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    request_id: int
    segment_id: str
    def __init__(self, client_id: _Optional[str] = ..., request_id: _Optional[int] = ..., segment_id: _Optional[str] = ...) -> None: ...

class UnmountSegmentResponse(_message.Message):
    __slots__ = ["header", "memory_held_ms"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_HELD_MS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    memory_held_ms: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., memory_held_ms: _Optional[int] = ...) -> None: ...

class ClientStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
