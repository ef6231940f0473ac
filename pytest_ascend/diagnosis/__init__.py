"""What an error of a case means, and what to do about it."""

from pytest_ascend.diagnosis.diagnose import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
