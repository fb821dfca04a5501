"""`packhouse fsck`: proves that what the hub says it has is there and right, and says what is not.

`check` reads, `repair` queues the work that mends what can be mended.
"""
