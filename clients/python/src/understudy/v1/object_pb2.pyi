from understudy.v1 import common_pb2 as _common_pb2
from understudy.v1 import errors_pb2 as _errors_pb2
from understudy.v1 import replica_pb2 as _replica_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
KV_EVENT_TYPE_EVICTED: KvEventType
KV_EVENT_TYPE_REMOVED: KvEventType
KV_EVENT_TYPE_STORED: KvEventType
KV_EVENT_TYPE_UNSPECIFIED: KvEventType
SOFT_PIN_ACTION_DISABLE: SoftPinAction
SOFT_PIN_ACTION_ENABLE: SoftPinAction
SOFT_PIN_ACTION_PRESERVE: SoftPinAction
SOFT_PIN_ACTION_UNSPECIFIED: SoftPinAction

class BatchExistKeyRequest(_message.Message):
    __slots__ = ["keys", "tenant"]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class BatchExistKeyResponse(_message.Message):
    __slots__ = ["errors", "exists", "header"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.ItemError]
    exists: _containers.RepeatedScalarFieldContainer[bool]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., exists: _Optional[_Iterable[bool]] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.ItemError, _Mapping]]] = ...) -> None: ...

class BatchGetReplicaListRequest(_message.Message):
    __slots__ = ["keys", "tenant"]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class BatchGetReplicaListResponse(_message.Message):
    __slots__ = ["errors", "header", "lease_ttl_ms", "objects"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.ItemError]
    header: _common_pb2.ResponseHeader
    lease_ttl_ms: int
    objects: _containers.RepeatedCompositeFieldContainer[_replica_pb2.ReplicaList]
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., lease_ttl_ms: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[_replica_pb2.ReplicaList, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.ItemError, _Mapping]]] = ...) -> None: ...

class BatchPutEndRequest(_message.Message):
    __slots__ = ["client_id", "items", "request_id", "selector", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    items: _containers.RepeatedCompositeFieldContainer[PutEndItem]
    request_id: int
    selector: _replica_pb2.ReplicaSelector
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[PutEndItem, _Mapping]]] = ..., selector: _Optional[_Union[_replica_pb2.ReplicaSelector, str]] = ...) -> None: ...

class BatchPutEndResponse(_message.Message):
    __slots__ = ["errors", "header", "succeeded"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.ItemError]
    header: _common_pb2.ResponseHeader
    succeeded: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., succeeded: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.ItemError, _Mapping]]] = ...) -> None: ...

class BatchPutRevokeRequest(_message.Message):
    __slots__ = ["client_id", "items", "request_id", "selector", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    items: _containers.RepeatedCompositeFieldContainer[PutRevokeItem]
    request_id: int
    selector: _replica_pb2.ReplicaSelector
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[PutRevokeItem, _Mapping]]] = ..., selector: _Optional[_Union[_replica_pb2.ReplicaSelector, str]] = ...) -> None: ...

class BatchPutRevokeResponse(_message.Message):
    __slots__ = ["errors", "header", "succeeded"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.ItemError]
    header: _common_pb2.ResponseHeader
    succeeded: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., succeeded: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.ItemError, _Mapping]]] = ...) -> None: ...

class BatchPutStartRequest(_message.Message):
    __slots__ = ["client_id", "config", "items", "request_id", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    config: PutConfig
    items: _containers.RepeatedCompositeFieldContainer[PutStartItem]
    request_id: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[PutStartItem, _Mapping]]] = ..., config: _Optional[_Union[PutConfig, _Mapping]] = ...) -> None: ...

class BatchPutStartResponse(_message.Message):
    __slots__ = ["errors", "header", "objects"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.ItemError]
    header: _common_pb2.ResponseHeader
    objects: _containers.RepeatedCompositeFieldContainer[_replica_pb2.ReplicaList]
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., objects: _Optional[_Iterable[_Union[_replica_pb2.ReplicaList, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.ItemError, _Mapping]]] = ...) -> None: ...

class BatchRemoveRequest(_message.Message):
    __slots__ = ["force", "keys", "request_id", "tenant"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    force: bool
    keys: _containers.RepeatedScalarFieldContainer[str]
    request_id: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ..., force: bool = ...) -> None: ...

class BatchRemoveResponse(_message.Message):
    __slots__ = ["errors", "header", "succeeded"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.ItemError]
    header: _common_pb2.ResponseHeader
    succeeded: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., succeeded: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.ItemError, _Mapping]]] = ...) -> None: ...

class BatchReplicaClearRequest(_message.Message):
    __slots__ = ["client_id", "keys", "request_id", "segment_name", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    request_id: int
    segment_name: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., segment_name: _Optional[str] = ...) -> None: ...

class BatchReplicaClearResponse(_message.Message):
    __slots__ = ["cleared", "header"]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    cleared: _containers.RepeatedScalarFieldContainer[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., cleared: _Optional[_Iterable[int]] = ...) -> None: ...

class ExistKeyRequest(_message.Message):
    __slots__ = ["key", "tenant"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    key: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class ExistKeyResponse(_message.Message):
    __slots__ = ["exists", "header"]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., exists: bool = ...) -> None: ...

class GetReplicaListByRegexRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "regex", "tenant"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    regex: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., regex: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GetReplicaListByRegexResponse(_message.Message):
    __slots__ = ["header", "lease_ttl_ms", "next_page_token", "objects"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    lease_ttl_ms: int
    next_page_token: str
    objects: _containers.RepeatedCompositeFieldContainer[KeyedReplicaList]
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., lease_ttl_ms: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[KeyedReplicaList, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetReplicaListRequest(_message.Message):
    __slots__ = ["key", "tenant"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    key: str
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class GetReplicaListResponse(_message.Message):
    __slots__ = ["header", "lease_ttl_ms", "object"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    lease_ttl_ms: int
    object: _replica_pb2.ReplicaList
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., lease_ttl_ms: _Optional[int] = ..., object: _Optional[_Union[_replica_pb2.ReplicaList, _Mapping]] = ...) -> None: ...

class KeyedReplicaList(_message.Message):
    __slots__ = ["key", "object"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    key: str
    object: _replica_pb2.ReplicaList
    def __init__(self, key: _Optional[str] = ..., object: _Optional[_Union[_replica_pb2.ReplicaList, _Mapping]] = ...) -> None: ...

class KvEvent(_message.Message):
    __slots__ = ["group_id", "in_memory", "key", "object_id", "on_disk", "size", "tenant", "type"]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    IN_MEMORY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    ON_DISK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    in_memory: bool
    key: str
    object_id: int
    on_disk: bool
    size: int
    tenant: str
    type: KvEventType
    def __init__(self, type: _Optional[_Union[KvEventType, str]] = ..., tenant: _Optional[str] = ..., key: _Optional[str] = ..., object_id: _Optional[int] = ..., size: _Optional[int] = ..., group_id: _Optional[str] = ..., in_memory: bool = ..., on_disk: bool = ...) -> None: ...

class KvEventsRequest(_message.Message):
    __slots__ = ["after"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: KvPosition
    def __init__(self, after: _Optional[_Union[KvPosition, _Mapping]] = ...) -> None: ...

class KvEventsResponse(_message.Message):
    __slots__ = ["events", "header", "resync", "through"]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[KvEvent]
    header: _common_pb2.ResponseHeader
    resync: bool
    through: KvPosition
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., resync: bool = ..., events: _Optional[_Iterable[_Union[KvEvent, _Mapping]]] = ..., through: _Optional[_Union[KvPosition, _Mapping]] = ...) -> None: ...

class KvPosition(_message.Message):
    __slots__ = ["history", "sequence", "term"]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    history: str
    sequence: int
    term: int
    def __init__(self, history: _Optional[str] = ..., term: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class PutConfig(_message.Message):
    __slots__ = ["data_type", "hard_pin", "host_id", "prefer_alloc_in_same_node", "preferred_segments", "replica_num", "soft_pin_action", "soft_pin_ttl_ms", "upsert"]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    HARD_PIN_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    PREFER_ALLOC_IN_SAME_NODE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_NUM_FIELD_NUMBER: _ClassVar[int]
    SOFT_PIN_ACTION_FIELD_NUMBER: _ClassVar[int]
    SOFT_PIN_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    UPSERT_FIELD_NUMBER: _ClassVar[int]
    data_type: int
    hard_pin: bool
    host_id: str
    prefer_alloc_in_same_node: bool
    preferred_segments: _containers.RepeatedScalarFieldContainer[str]
    replica_num: int
    soft_pin_action: SoftPinAction
    soft_pin_ttl_ms: int
    upsert: bool
    def __init__(self, replica_num: _Optional[int] = ..., preferred_segments: _Optional[_Iterable[str]] = ..., soft_pin_action: _Optional[_Union[SoftPinAction, str]] = ..., soft_pin_ttl_ms: _Optional[int] = ..., hard_pin: bool = ..., prefer_alloc_in_same_node: bool = ..., data_type: _Optional[int] = ..., host_id: _Optional[str] = ..., upsert: bool = ...) -> None: ...

class PutEndItem(_message.Message):
    __slots__ = ["key", "object_checksum", "object_id"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    key: str
    object_checksum: int
    object_id: int
    def __init__(self, key: _Optional[str] = ..., object_id: _Optional[int] = ..., object_checksum: _Optional[int] = ...) -> None: ...

class PutEndRequest(_message.Message):
    __slots__ = ["client_id", "key", "object_checksum", "object_id", "request_id", "selector", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    key: str
    object_checksum: int
    object_id: int
    request_id: int
    selector: _replica_pb2.ReplicaSelector
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., key: _Optional[str] = ..., object_id: _Optional[int] = ..., selector: _Optional[_Union[_replica_pb2.ReplicaSelector, str]] = ..., object_checksum: _Optional[int] = ...) -> None: ...

class PutEndResponse(_message.Message):
    __slots__ = ["header"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class PutRevokeItem(_message.Message):
    __slots__ = ["key", "object_id"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    key: str
    object_id: int
    def __init__(self, key: _Optional[str] = ..., object_id: _Optional[int] = ...) -> None: ...

class PutRevokeRequest(_message.Message):
    __slots__ = ["client_id", "key", "object_id", "request_id", "selector", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    key: str
    object_id: int
    request_id: int
    selector: _replica_pb2.ReplicaSelector
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., key: _Optional[str] = ..., object_id: _Optional[int] = ..., selector: _Optional[_Union[_replica_pb2.ReplicaSelector, str]] = ...) -> None: ...

class PutRevokeResponse(_message.Message):
    __slots__ = ["header"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class PutStartItem(_message.Message):
    __slots__ = ["group_id", "key", "size"]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    key: str
    size: int
    def __init__(self, key: _Optional[str] = ..., size: _Optional[int] = ..., group_id: _Optional[str] = ...) -> None: ...

class PutStartRequest(_message.Message):
    __slots__ = ["client_id", "config", "group_id", "key", "request_id", "size", "tenant"]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    config: PutConfig
    group_id: str
    key: str
    request_id: int
    size: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., client_id: _Optional[str] = ..., key: _Optional[str] = ..., size: _Optional[int] = ..., group_id: _Optional[str] = ..., config: _Optional[_Union[PutConfig, _Mapping]] = ...) -> None: ...

class PutStartResponse(_message.Message):
    __slots__ = ["header", "object"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    object: _replica_pb2.ReplicaList
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., object: _Optional[_Union[_replica_pb2.ReplicaList, _Mapping]] = ...) -> None: ...

class RemoveAllRequest(_message.Message):
    __slots__ = ["all_tenants", "force", "request_id", "tenant"]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    all_tenants: bool
    force: bool
    request_id: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., force: bool = ..., all_tenants: bool = ...) -> None: ...

class RemoveAllResponse(_message.Message):
    __slots__ = ["header", "kept_in_progress", "kept_leased", "removed"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEPT_IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    KEPT_LEASED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    kept_in_progress: int
    kept_leased: int
    removed: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., removed: _Optional[int] = ..., kept_leased: _Optional[int] = ..., kept_in_progress: _Optional[int] = ...) -> None: ...

class RemoveByRegexRequest(_message.Message):
    __slots__ = ["force", "regex", "request_id", "tenant"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    force: bool
    regex: str
    request_id: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., regex: _Optional[str] = ..., force: bool = ...) -> None: ...

class RemoveByRegexResponse(_message.Message):
    __slots__ = ["header", "kept_in_progress", "kept_leased", "removed"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEPT_IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    KEPT_LEASED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    kept_in_progress: int
    kept_leased: int
    removed: int
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ..., removed: _Optional[int] = ..., kept_leased: _Optional[int] = ..., kept_in_progress: _Optional[int] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ["force", "key", "request_id", "tenant"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    force: bool
    key: str
    request_id: int
    tenant: str
    def __init__(self, tenant: _Optional[str] = ..., request_id: _Optional[int] = ..., key: _Optional[str] = ..., force: bool = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ["header"]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_common_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class SoftPinAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class KvEventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
