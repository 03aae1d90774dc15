#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_includes.py catches each kind of violation, names its place, and lets what is allowed pass."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_includes  # noqa: E402


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def found(self, path, *lines):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return check_includes.check(self.root)[0]

    def assert_refused(self, place, reason, found):
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(place + ": "), found)
        self.assertIn(reason, found[0])

    def test_module_above(self):
        found = self.found("strata/base/a.h", "// text", '#include "strata/tensor/tensor.h"')
        self.assert_refused("strata/base/a.h:2", "may include only itself, not tensor", found)

    def test_unknown_module(self):
        found = self.found("strata/extra/a.h", '#include "strata/base/a.h"')
        self.assert_refused("strata/extra/a.h:1", "not in the table", found)

    def test_backend_header_elsewhere(self):
        found = self.found("strata/model/a.cc", "#include <dnnl.hpp>")
        self.assert_refused("strata/model/a.cc:1", "only under strata/kernels/cpu/", found)

    def test_private_folder(self):
        found = self.found("strata/model/a.cc", '#include "strata/kernels/ref/ref.h"')
        self.assert_refused("strata/model/a.cc:1", "private to strata/kernels", found)

    def test_private_folder_from_the_command(self):
        found = self.found("apps/a.cc", '#include "strata/kernels/cpu/gemm.h"')
        self.assert_refused("apps/a.cc:1", "private to strata/kernels", found)

    def test_relative_name(self):
        self.assert_refused("strata/base/a.cc:1", "whole path", self.found("strata/base/a.cc", '#include "a.h"'))

    def test_allowed(self):
        allowed = {
            "strata/base/a.cc": '#include "strata/base/a.h"',
            "strata/model/a.cc": '#include "strata/kernels/kernels.h"',
            "strata/model/a_test.cc": '#include "strata/kernels/ref/ref.h"',
            "strata/kernels/cpu/a.cc": "#include <oneapi/dnnl/dnnl.hpp>",
            "bench/a_bench.cc": '#include "strata/kernels/cpu/gemm.h"',
            "apps/strata.cc": '#include "strata/train/metrics.h"',
        }
        for path, line in allowed.items():
            self.assertEqual(self.found(path, "#include <vector>", line), [], path)

    def test_table_has_no_cycle(self):
        below = {}
        for module, allowed in check_includes.MODULES.items():
            self.assertLessEqual(set(allowed.split()), set(below), f"{module} includes a module listed after it")
            below[module] = allowed

    def test_exit_status(self):
        script = pathlib.Path(check_includes.__file__)
        run = lambda: subprocess.run([sys.executable, script, self.root], capture_output=True, text=True)  # noqa: E731
        self.assertIn("no sources", run().stderr)
        self.found("strata/base/a.cc", "#include <vector>")
        self.assertEqual(run().returncode, 0)
        self.found("strata/base/b.cc", '#include "strata/spec/plan.h"')
        self.assertEqual(run().returncode, 1)


if __name__ == "__main__":
    unittest.main()
