"""Certificates: that a combination conforms, signed, and checkable by anybody with the public key and this release."""
