from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ResponseHeader(_message.Message):
    __slots__ = ["cluster_id", "node_id", "term"]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: str
    term: int
    def __init__(self, term: _Optional[int] = ..., cluster_id: _Optional[str] = ..., node_id: _Optional[str] = ...) -> None: ...
