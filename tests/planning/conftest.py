"""The tiny run of the tests of reports."""

from tests.report.conftest import make_parts as make_parts
