"""Where cases run: one small protocol, and an implementation for each kind of device."""

from pytest_ascend.device.protocol import Device, Request, parse

__all__ = ["Device", "Request", "parse"]
