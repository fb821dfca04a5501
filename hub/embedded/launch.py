"""Become one server: never root, and never longer alive than the parent.

Run as a script by `hub.embedded.processes`, in a process of its own, because the steps must happen between
fork and exec, and code after a fork in a process with threads may dead-lock:

    python -I -S launch.py PARENT SIGNAL IDENTITY PROGRAM [ARGUMENT…]

PARENT    process id of the supervisor; when it is gone already, nothing is started
SIGNAL    number of the signal that the kernel sends to the program when the supervisor dies
IDENTITY  `own`: stay who we are; `namespace`: a user namespace without a map, in which our user id reads as
          65534 (Postgres refuses to run as root and asks geteuid), while files still belong to us;
          `UID:GID`: become that user

Exit status 126: the identity was refused by the kernel; 127: the program cannot be executed.
"""

from __future__ import annotations

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
REFUSED = 126
NOT_EXECUTABLE = 127


def _become(identity: str, libc: ctypes.CDLL) -> None:
    if identity == "own":
        return
    if identity == "namespace":
        if libc.unshare(CLONE_NEWUSER) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"no user namespace: {os.strerror(number)}")
        return
    uid, gid = (int(part) for part in identity.split(":"))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def main(arguments: list[str]) -> int:
    """Take the identity, tie the life to the parent's, and become the program."""
    parent, death_signal, identity, program = int(arguments[0]), int(arguments[1]), arguments[2], arguments[3:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _become(identity, libc)
    except OSError as error:
        sys.stderr.write(f"launch: {error}\n")
        return REFUSED
    # After the change of identity: the kernel forgets the death signal whenever the user id changes.
    libc.prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        return 0
    try:
        os.execv(program[0], program)  # noqa: S606  # no shell is wanted
    except OSError as error:
        sys.stderr.write(f"launch: {program[0]}: {error.strerror}\n")
    return NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
