"""What the package says where its own dependencies are missing."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"

# Nothing but the Python client may be found.
PROGRAM = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("grpc", "google"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import understudy
"""


class Import(unittest.TestCase):
    def test_names_the_package_that_is_missing(self) -> None:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False
        )
        self.assertEqual(ended.returncode, 1)
        self.assertIn("understudy needs the package protobuf: pip install grpcio protobuf", ended.stderr)


if __name__ == "__main__":
    unittest.main()
