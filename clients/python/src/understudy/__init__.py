"""The Python client of Understudy, a metadata master with hot standbys.

It finds the primary, goes on with the next one after a failover, and makes sure that
each call has one outcome. Start with Client; errors has what calls raise.
"""

from understudy import errors
from understudy.client import Client
from understudy.types import (
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
