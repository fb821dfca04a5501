"""Failures of other queues, replayed on this one. Their numbers are listed in test_every_case.py."""
