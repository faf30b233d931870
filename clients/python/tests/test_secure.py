"""The client of a cluster with TLS and roles."""

from __future__ import annotations

import pathlib
import tempfile
import time
import unittest
from typing import Any, Dict

import understudy
from understudy import _access, errors
from tests.secure import TOKEN, SecureCluster

MIB = 1 << 20


class Secure(unittest.TestCase):
    cluster: SecureCluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = SecureCluster()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cluster.stop()

    def test_1_a_token_says_who_the_client_is(self) -> None:
        with self.cluster.client(client_id=self.cluster.client_id, tls_ca=self.cluster.ca, token=TOKEN) as client:
            client.mount_segment(understudy.Segment(name="host-1", base=1 << 32, size=64 * MIB, endpoint="host-1:1"))
            client.put_end(client.put_start("one", MIB))
            self.assertEqual(client.get("one").size, MIB)

    def test_2_a_certificate_says_so_too(self) -> None:
        certs = self.cluster.dir / "certs"
        with self.cluster.client(
            tls_ca=self.cluster.ca, tls_cert=certs / "operator.crt", tls_key=certs / "operator.key"
        ) as client:
            self.assertTrue(client.exists("one"))

    def test_3_others_are_refused(self) -> None:
        refused: Dict[str, Dict[str, Any]] = {
            "a stranger": {"tls_ca": self.cluster.ca},
            "another token": {"tls_ca": self.cluster.ca, "token": "x" * 32},
        }
        for what, options in refused.items():  # at once: waiting is no use
            with self.subTest(what), self.cluster.client(timeout=600, client_id=self.cluster.client_id, **options) as client:
                with self.assertRaises(errors.IllegalClient):
                    client.exists("one")
        deaf: Dict[str, Dict[str, Any]] = {"plain text": {}, "other authorities": {"tls": True, "token": TOKEN}}
        for what, options in deaf.items():
            with self.subTest(what), self.cluster.client(timeout=2, client_id=self.cluster.client_id, **options) as client:
                with self.assertRaises(errors.Unavailable):
                    client.exists("one")

    def test_4_the_token_is_shown_to_the_next_primary(self) -> None:
        with self.cluster.client(client_id=self.cluster.client_id, tls_ca=self.cluster.ca, token=TOKEN) as client:
            self.assertEqual(client.get("one").size, MIB)
            self.cluster.kill("master")
            self.assertEqual(client.get("one").size, MIB)
            leader = client.leader()
            self.assertTrue(leader is not None and leader.node_id == "standby")

    def test_5_new_certificates_are_read(self) -> None:
        ca = self.cluster.dir / "replaced.crt"
        ca.write_bytes(self.cluster.other_authority().read_bytes())
        with self.cluster.client(timeout=1, client_id=self.cluster.client_id, tls_ca=ca, token=TOKEN) as client:
            with self.assertRaises(errors.Unavailable):
                client.exists("one")
            ca.unlink()
            with self.assertRaises(errors.Unavailable):  # it goes on with what it has
                client.exists("one")
            ca.write_bytes(self.cluster.ca.read_bytes())
            self.assertTrue(client.exists("one", timeout=30))


    def test_6_a_new_token_is_read(self) -> None:
        file = self.cluster.dir / "token"
        file.write_text("x" * 32 + "\n")
        with self.cluster.client(client_id=self.cluster.client_id, tls_ca=self.cluster.ca, token_file=file) as client:
            with self.assertRaises(errors.IllegalClient):
                client.exists("one")
            file.write_text(TOKEN + "\n")
            deadline = time.monotonic() + 30
            while True:
                try:
                    self.assertTrue(client.exists("one"))
                    break
                except errors.IllegalClient:  # it is read again once a second
                    self.assertLess(time.monotonic(), deadline)


class Tokens(unittest.TestCase):
    def test_what_is_no_token_leaves_the_one_of_before(self) -> None:
        at = 0.0
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "token"
            file.write_text("one\n")
            access = _access.Access(tls=True, token_file=file, now=lambda: at)
            for text, want in (("two", "two"), ("", "two"), ("a b", "two"), ("\xe9", "two"), (None, "two"), ("three\n", "three")):
                file.unlink() if text is None else file.write_text(text)
                was = access.metadata()
                at += _access.TOKEN_AGE
                with self.subTest(text):
                    self.assertNotEqual(was, (("authorization", f"Bearer {text}"),))  # it was read a moment ago
                    self.assertEqual(access.metadata(), (("authorization", f"Bearer {want}"),))


class Options(unittest.TestCase):
    def test_what_does_not_fit_together_is_refused(self) -> None:
        for wrong, hint in (
            ({"token": "x"}, "give tls_ca"),
            ({"tls_cert": "a.crt"}, "need each other"),
            ({"token_file": "x"}, "give tls_ca"),
            ({"token_file": "x", "token": "x"}, "exclude each other"),
            ({"tls": True, "token_file": "/does/not/exist"}, "token_file cannot be read"),
            ({"tls": True, "token_file": "/dev/null"}, "must have one token"),
            ({"tls_ca": "/does/not/exist"}, "tls_ca cannot be read"),
            ({"tls": True, "token": "a\nb"}, "printable"),
            ({"tls": True, "credentials": object()}, "exclude each other"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(errors.InvalidParams, hint):
                understudy.Client(["127.0.0.1:1"], **wrong)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
