"""The mpack: the file in which objects, snapshots and commits travel and are kept. Streams in, objects out.

docs/reference/mpack.md has the format, byte by byte.
"""
