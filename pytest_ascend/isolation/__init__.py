"""Run cases in child processes, so that the run continues when a device hangs or kills its process.

Imports neither pytest nor torch. The caller defines what a child does and receives its answers.
"""
