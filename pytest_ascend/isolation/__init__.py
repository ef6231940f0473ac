"""Cases in child processes, so that the run continues when a device hangs or kills the process that uses it.

Imports neither pytest nor torch. The caller says what a child does and receives its answers.
"""
