"""Runs tests of other projects; prints what came of each as a line of JSON.

Its arguments: the module that puts our backend in their places, and what to test.
"""

import importlib
import json
import sys

import django

django.setup()

from django.test.runner import DiscoverRunner

importlib.import_module(sys.argv[1])


class Runner(DiscoverRunner):
    """Keeps what came of each test."""

    def run_suite(self, suite, **options):
        result = super().run_suite(suite, **options)
        failed = {
            getattr(test, "test_case", test).id(): text
            for test, text in (*result.failures, *result.errors)
        }
        skipped = {test.id(): why for test, why in result.skipped}
        print(
            json.dumps({"ran": result.testsRun, "failed": failed, "skipped": skipped})
        )
        return result


runner = Runner(verbosity=0, interactive=False)
runner.run_tests(sys.argv[2:])
