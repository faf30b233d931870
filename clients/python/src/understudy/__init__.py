"""The Python client of Understudy, a metadata master with hot standbys.

It finds the primary, goes on with the next one after a failover, and makes sure that
each call has one outcome. Start with Client; errors has what calls raise.
"""

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"understudy needs the package {'grpcio' if error.name == 'grpc' else 'protobuf'}: "
        "pip install grpcio protobuf, or on Debian apt-get install python3-grpcio python3-protobuf",
        name=error.name,
    ) from error

from understudy import errors
from understudy.client import Client
from understudy.types import (
    KeyEvent,
    KeyEvents,
    KeyEventType,
    KeyPosition,
    Leader,
    Lease,
    Liveness,
    Object,
    PutConfig,
    PutItem,
    Replica,
    ReplicaKind,
    Reservation,
    Segment,
    Selector,
    SoftPin,
)

__all__ = [
    "Client",
    "KeyEvent",
    "KeyEventType",
    "KeyEvents",
    "KeyPosition",
    "Leader",
    "Lease",
    "Liveness",
    "Object",
    "PutConfig",
    "PutItem",
    "Replica",
    "ReplicaKind",
    "Reservation",
    "Segment",
    "Selector",
    "SoftPin",
    "errors",
]
