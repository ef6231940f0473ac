"""Certificates: signed statements that a combination conforms, verifiable with the public key and this release."""
