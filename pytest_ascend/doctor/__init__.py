"""The doctor: what is installed on a machine, whether the versions match, and why an NPU does not work."""

from pytest_ascend.doctor.examination import RULES, examine, in_short
from pytest_ascend.doctor.findings import Diagnosis, Finding

__all__ = ["RULES", "Diagnosis", "Finding", "examine", "in_short"]
