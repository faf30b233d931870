"""What is repeated, against real gRPC servers that answer as a script says."""

from __future__ import annotations

import time
import unittest
from concurrent import futures
from typing import Any, Callable, List, Tuple

import grpc
from google.protobuf import any_pb2

import understudy
from understudy import _calls, _finder, _wire, errors
from understudy.types import now
from understudy.v1 import client_pb2, common_pb2, errors_pb2, object_pb2, replica_pb2

# An answer, or an exception that ends the call.
Answer = Callable[[Any, grpc.ServicerContext], Any]


class Node:
    """A node that answers as scripted; ServiceReady as the leader of its term, if it leads."""

    def __init__(self, test: unittest.TestCase, name: str) -> None:
        self.name, self.term, self.leads, self.leader = name, 1, True, ""
        self.asked: List[Tuple[str, Any]] = []
        self.refuses = ""  # the kind of error with which it refuses whoever asks whether it leads
        self.probed = 0  # how often it was asked whether it leads
        self.script: List[Answer] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        test.addCleanup(lambda: self._server.stop(0).wait())

    def header(self) -> common_pb2.ResponseHeader:
        return common_pb2.ResponseHeader(term=self.term, cluster_id="c", node_id=self.name)

    def answer(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        name = method.rsplit("/", 1)[1]
        if name == "ServiceReady":
            self.probed += 1
            if self.refuses:
                self.fail(self.refuses)(request, context)
            if self.leads:
                return client_pb2.ServiceReadyResponse(header=self.header())
            self.fail("UNAVAILABLE_IN_CURRENT_MODE")(request, context)
        self.asked.append((name, request))
        return self.script.pop(0)(request, context)

    def fail(self, kind: str) -> Answer:
        """Answers an error of a kind."""

        def answer(_: Any, context: grpc.ServicerContext) -> Any:
            detail = errors_pb2.ErrorDetail(
                header=self.header(), kind=errors_pb2.Kind.Value(f"KIND_{kind}"), leader_address=self.leader
            )
            packed = any_pb2.Any()
            packed.Pack(detail)
            status = _wire._Status(code=14, message=kind, details=[packed])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNAVAILABLE, kind)

        return answer

    def lose(self, _: Any, context: grpc.ServicerContext) -> Any:
        """Ends the call as a broken connection does."""
        context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def hang(self, _: Any, context: grpc.ServicerContext) -> Any:
        """Answers nothing."""
        while context.is_active():
            time.sleep(0.01)

    def reserve(self, _: Any, __: grpc.ServicerContext) -> Any:
        return object_pb2.PutStartResponse(header=self.header(), object=replica_pb2.ReplicaList(object_id=5, size=1))


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, node: Node) -> None:
        self._node = node

    def service(self, details: Any) -> Any:
        name = details.method.rsplit("/", 1)[1]
        requests = client_pb2 if name == "ServiceReady" else object_pb2
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._node.answer(details.method, request, context),
            request_deserializer=getattr(requests, f"{name}Request").FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )


class Repeats(unittest.TestCase):
    def setUp(self) -> None:
        self.a, self.b = Node(self, "a"), Node(self, "b")
        self.b.leads, self.b.leader = False, self.a.address

    def client(self, *nodes: Node, timeout: float = 20.0) -> understudy.Client:
        client = understudy.Client([n.address for n in nodes], cluster_id="c", timeout=timeout)
        self.addCleanup(client.close)
        return client

    def test_a_lost_put_is_repeated_under_its_request_id(self) -> None:
        self.a.script = [self.a.lose, self.a.fail("RPC_TIMEOUT"), self.a.fail("UNAVAILABLE_IN_CURRENT_STATUS"), self.a.reserve]
        self.assertEqual(self.client(self.a).put_start("k", 1).id, 5)
        ids = {request.request_id for _, request in self.a.asked}
        self.assertEqual((len(self.a.asked), len(ids), 0 in ids), (4, 1, False))

    def test_repeats_end_before_nodes_forget_the_request(self) -> None:
        client = self.client(self.a)
        client.leader()
        self.addCleanup(setattr, _calls, "REPEAT_FOR", _calls.REPEAT_FOR)
        _calls.REPEAT_FOR = 0.5
        for second in (self.a.lose, self.a.hang):
            self.a.asked, self.a.script = [], [self.a.lose] * 2 + [second] * 1000
            begun = time.monotonic()
            with self.assertRaises(errors.Unresolved) as unresolved:
                client.remove("k")
            self.assertLess(time.monotonic() - begun, 10)
            self.assertIn("forget", str(unresolved.exception))
            self.assertGreater(len(self.a.asked), 2)

    def test_the_first_attempt_that_may_be_applied_begins_the_time_for_repeats(self) -> None:
        client = self.client(self.a)
        client.leader()
        self.addCleanup(setattr, _calls, "REPEAT_FOR", _calls.REPEAT_FOR)
        _calls.REPEAT_FOR = 0.5
        self.a.script = [self.a.fail("UNAVAILABLE_IN_CURRENT_STATUS")] * 10 + [self.a.lose, self.a.reserve]
        self.assertEqual(client.put_start("k", 1).id, 5)

    def test_a_removal_of_all_is_not_repeated(self) -> None:
        self.a.script = [self.a.lose]
        with self.assertRaises(errors.Unresolved):
            self.client(self.a).remove_all()
        self.assertEqual(len(self.a.asked), 1)

    def test_hints_lead_to_nodes_that_were_not_configured(self) -> None:
        self.a.script = [self.a.reserve]
        client = self.client(self.b)
        client.put_start("k", 1)
        self.assertEqual(client.leader().address, self.a.address)

    def test_answers_of_a_replaced_primary_are_dropped(self) -> None:
        client = self.client(self.a, self.b)
        self.a.term = 7
        self.assertEqual(client.leader().term, 7)
        self.a.term = 6  # an answer that was sent before the newer term
        self.b.leads, self.b.term = True, 7

        def late(request: Any, context: grpc.ServicerContext) -> Any:
            return self.a.reserve(request, context)

        self.a.script, self.b.script = [late], [self.b.reserve]
        self.assertEqual(client.put_start("k", 1).id, 5)
        self.assertEqual((len(self.a.asked), len(self.b.asked)), (1, 1))

    def test_a_term_that_nobody_serves_lapses(self) -> None:
        self.addCleanup(setattr, _finder, "LAPSE_AFTER", _finder.LAPSE_AFTER)
        _finder.LAPSE_AFTER = 1.0
        client = self.client(self.a, self.b)
        client.leader()
        for case in ("announced", "served"):
            self.a.term = 9
            if case == "announced":
                self.a.script = [self.a.fail("UNAVAILABLE_IN_CURRENT_MODE")]
                self.a.leads = False
                with self.assertRaises(errors.Unavailable):
                    client.put_start("k", 1, timeout=0.3)
                self.a.leads, self.a.script = True, []
            else:
                self.assertEqual(client.leader().term, 9)
            self.a.term = 1
            begun = time.monotonic()
            self.assertEqual(client.leader().term, 1)
            self.assertGreater(time.monotonic() - begun, 0.9)

    def test_a_term_lapses_for_calls_far_apart(self) -> None:
        finder = self.client(self.a)._finder
        self.assertTrue(finder.served(9, now()))
        self.assertFalse(finder.served(1, now()))
        refused = now()
        late = (refused - 60, refused + 5)  # answers that were long under way, or asked for too soon
        self.assertEqual([finder.served(1, begun) for begun in late], [False, False])
        self.assertTrue(finder.served(1, refused + 60))

    def test_a_leader_that_hangs_is_left_for_its_successor(self) -> None:
        client = self.client(self.a, self.b)
        client.leader()

        def hang(_: Any, context: grpc.ServicerContext) -> Any:
            self.a.leads, self.b.leads, self.b.term = False, True, 2
            while context.is_active():
                time.sleep(0.01)

        self.a.script, self.b.script = [hang], [self.b.reserve]
        self.assertEqual(client.put_start("k", 1).id, 5)

    def test_a_slow_leader_is_not_left_for_its_own_other_address(self) -> None:
        other = Node(self, "a")  # stands for another address of the same node
        client = self.client(self.a, other)
        other.leads = False
        client.leader()

        def slow(_: Any, context: grpc.ServicerContext) -> Any:
            self.a.leads, other.leads = False, True  # so that the other address is the first to answer
            probed = other.probed
            while context.is_active() and other.probed < probed + 3:
                time.sleep(0.01)
            return object_pb2.RemoveAllResponse(header=self.a.header(), removed=3)

        self.a.script = [slow]
        self.assertEqual(client.remove_all(), 3)

    def test_only_items_without_an_outcome_are_repeated(self) -> None:
        def some(_: Any, __: grpc.ServicerContext) -> Any:
            items = [
                errors_pb2.ItemError(index=1, kind=errors_pb2.KIND_OBJECT_NOT_FOUND),
                errors_pb2.ItemError(index=2, kind=errors_pb2.KIND_RPC_TIMEOUT),
            ]
            return object_pb2.BatchRemoveResponse(header=self.a.header(), succeeded=1, errors=items)

        def short(_: Any, __: grpc.ServicerContext) -> Any:  # an answer that is not whole counts as lost
            return object_pb2.BatchRemoveResponse(header=self.a.header())

        def rest(_: Any, __: grpc.ServicerContext) -> Any:
            return object_pb2.BatchRemoveResponse(header=self.a.header(), succeeded=1)

        self.a.script = [some, short, rest]
        removed = self.client(self.a).batch_remove(["x", "y", "z"])
        self.assertEqual([type(r) for r in removed], [type(None), errors.ObjectNotFound, type(None)])
        first, second, third = (request for _, request in self.a.asked)
        self.assertEqual((list(second.keys), second.request_id), (["z"], first.request_id + 2))
        self.assertEqual(second, third)

    def test_credentials_that_are_refused_end_a_call_at_once(self) -> None:
        client = self.client(self.a, timeout=600)
        self.a.refuses = "ILLEGAL_CLIENT"
        with self.assertRaises(errors.IllegalClient):
            client.put_start("k", 1)
        self.b.leads, self.b.script = True, [self.b.reserve]  # one that takes them counts for more
        self.assertEqual(self.client(self.a, self.b).put_start("k", 1).id, 5)

    def test_an_item_that_may_be_changed_begins_the_time_for_repeats(self) -> None:
        client = self.client(self.a)
        client.leader()
        self.addCleanup(setattr, _calls, "REPEAT_FOR", _calls.REPEAT_FOR)
        _calls.REPEAT_FOR = 0.5

        def some(request: Any, __: grpc.ServicerContext) -> Any:  # the last failure leaves nothing open
            kinds = {"x": errors_pb2.KIND_RPC_TIMEOUT, "z": errors_pb2.KIND_UNAVAILABLE_IN_CURRENT_STATUS}
            items = [errors_pb2.ItemError(index=i, kind=kinds[k]) for i, k in enumerate(request.keys) if k in kinds]
            return object_pb2.BatchRemoveResponse(header=self.a.header(), succeeded=len(request.keys) - len(items), errors=items)

        later = self.a.fail("UNAVAILABLE_IN_CURRENT_STATUS")  # nor does what follows
        self.a.script = [some] + [later] * 1000
        begun = time.monotonic()
        removed = client.batch_remove(["x", "y", "z"])
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual([type(r) for r in removed], [errors.Unresolved, type(None), errors.Unavailable])

    def test_a_request_that_is_too_large_is_not_open(self) -> None:
        client = understudy.Client([self.a.address], cluster_id="c", max_message_bytes=1 << 10)
        self.addCleanup(client.close)
        with self.assertRaisesRegex(errors.InvalidParams, "split it"):
            client.batch_remove(["k" * 2000])
        self.assertEqual(self.a.asked, [])

    def test_the_deadline_tells_nothing_changed_from_unresolved(self) -> None:
        client = self.client(self.b, timeout=0.3)
        self.b.leader = ""
        with self.assertRaises(errors.Unavailable) as nothing:
            client.put_start("k", 1)
        self.assertIn("nothing was changed", str(nothing.exception))
        self.a.script = [self.a.lose] * 100
        connected = self.client(self.a)
        connected.leader()
        with self.assertRaises(errors.Unresolved):
            connected.put_start("k", 1, timeout=0.3)

    def test_a_client_that_is_closed_while_it_searches(self) -> None:
        client = self.client(self.a)
        for node in client._finder._nodes:
            node.close()  # as close does, after the search has begun
        with self.assertRaises(errors.Unavailable):
            client.put_start("k", 1, timeout=0.1)

    def test_bad_addresses_are_named(self) -> None:
        bad: List[List[str]] = [[], ["here"], [":1"], ["h:p"]]
        for addresses in bad:
            with self.assertRaises(errors.InvalidParams):
                understudy.Client(addresses)
