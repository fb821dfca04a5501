"""The embedded parts: a real Postgres and a real S3 server, run by us, for a laptop and for the tests.

`state` owns the directory, `ports` finds free ports, `processes` starts and ends children through `launch`,
`identity` says as whom; `postgres` and `objectstore` are the two servers.
"""
