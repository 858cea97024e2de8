"""Confinement: what an image worker gives up before it reads a stranger's bytes.

    no-new-privs   no program gains rights; the two others need it
    seccomp        no sockets, no programs, no processes, no files to write, no other process
    landlock       no files but those below `read`, no TCP, no signal to another process

Each is tried by itself, and none is given back. `confine` returns why a protection is missing; the
service logs that, `/v1/state` and `sluicegate doctor` show it. A denied call fails with EPERM or
EACCES, and the job with it; the worker goes on.

seccomp denies what is listed, since what libvips needs differs between versions of libc. It is
loaded by libseccomp, which knows the numbers of each processor. Landlock (Linux 5.13) has no
library that is kept, so its three system calls are made here; their numbers are the same on all
processors.

    python -m sluicegate.stores.images.confinement     confine itself, and print what is missing
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, Final

NO_NEW_PRIVS: Final = "no-new-privs"
SECCOMP: Final = "seccomp"
LANDLOCK: Final = "landlock"
PROTECTIONS: Final = (NO_NEW_PRIVS, SECCOMP, LANDLOCK)

_PR_SET_NO_NEW_PRIVS: Final = 38
_CLONE_THREAD: Final = 0x10000

# seccomp.
_NETWORK: Final = (
    "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "sendto", "sendmsg",
    "sendmmsg", "recvmsg", "recvmmsg",
)  # fmt: skip
_PROGRAMS: Final = ("execve", "execveat", "fork", "vfork")
_FILES: Final = (
    "creat", "truncate", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
    "symlinkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat", "chmod",
    "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
    "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
    "fremovexattr", "name_to_handle_at", "open_by_handle_at", "memfd_create", "memfd_secret",
)  # fmt: skip
_OTHERS: Final = (
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_open", "pidfd_getfd",
    "pidfd_send_signal", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
)  # fmt: skip
_KERNEL: Final = (
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "keyctl", "add_key", "request_key", "unshare", "setns", "chroot", "mount",
    "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsmount", "fspick",
    "mount_setattr", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "shmget", "shmat", "msgget", "semget", "mq_open", "personality", "swapon",
    "swapoff", "reboot", "acct", "quotactl", "syslog", "inotify_init", "inotify_init1",
    "fanotify_init", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid",
    "setgroups", "capset",
)  # fmt: skip
_DENIED: Final = (*_NETWORK, *_PROGRAMS, *_FILES, *_OTHERS, *_KERNEL)
# libc tries these first and takes an older call where they do not exist; their arguments are in
# memory, which a filter cannot read.
_ABSENT: Final = ("clone3", "openat2")

# Landlock: the rights to files by the version in which they came.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_RULE_PATH_BENEATH: Final = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS: Final = ((1, 13), (2, 14), (3, 15), (5, 16))  # (version, how many bits)
_NETWORK_VERSION, _NETWORK_RIGHTS = 4, 3  # bind and connect of TCP
_SCOPE_VERSION, _SCOPES = 6, 3  # abstract sockets, and signals


def confine(read: Iterable[str] = ()) -> dict[str, str]:
    """Give up everything but computing; return why a protection is missing, "" where it is not.

    Call it before a second thread is started: threads inherit it. Files below `read` stay readable.
    """
    missing = dict.fromkeys(PROTECTIONS, "")
    if sys.platform != "linux":
        return dict.fromkeys(PROTECTIONS, f"{sys.platform} has none")
    paths = [*library_paths(), *read]
    loaded: list[Any] = []
    for name, apply in (
        (SECCOMP, lambda: loaded.append(_call_filter())),  # finding libseccomp runs a program
        (NO_NEW_PRIVS, _set_no_new_privs),
        (LANDLOCK, lambda: _restrict_files(paths)),
        (SECCOMP, lambda: [one.load() for one in loaded]),  # it denies what the others need
    ):
        try:
            apply()
        except Exception as error:  # a library that is missing, or a kernel that has none
            missing[name] = str(error) or type(error).__name__
    return missing


def library_paths() -> list[str]:
    """Return where modules and shared libraries are, which may be loaded later."""
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
    found = [*system, *sys.path, sys.base_prefix]
    return [path for path in dict.fromkeys(found) if path and os.path.isdir(path)]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        if number == errno.ENOSYS:
            raise OSError(number, f"this kernel has no {what}")
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _set_no_new_privs() -> None:
    _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), NO_NEW_PRIVS)


def _call_filter() -> Any:
    """Return the filter, not loaded yet."""
    import pyseccomp as seccomp  # noqa: PLC0415 - it raises where libseccomp is not installed

    found = seccomp.SyscallFilter(seccomp.ALLOW)
    deny, absent = seccomp.ERRNO(errno.EPERM), seccomp.ERRNO(errno.ENOSYS)
    own, masked = os.getpid(), seccomp.MASKED_EQ

    def add(action: int, name: str, *arguments: object) -> None:
        try:
            found.add_rule(action, name, *arguments)
        except (OSError, ValueError, RuntimeError):
            if arguments or name in ("socket", "execve"):  # others may not exist on a processor
                raise

    for name in _DENIED:
        add(deny, name)
    for name in _ABSENT:
        add(absent, name)
    add(deny, "clone", seccomp.Arg(0, masked, _CLONE_THREAD, 0))
    for flags, mask in (
        (os.O_WRONLY, os.O_ACCMODE),
        (os.O_RDWR, os.O_ACCMODE),
        (os.O_CREAT, os.O_CREAT),
    ):
        add(deny, "openat", seccomp.Arg(2, masked, mask, flags))
        if os.uname().machine == "x86_64":  # newer processors have `openat` alone
            add(deny, "open", seccomp.Arg(1, masked, mask, flags))
    add(deny, "tgkill", seccomp.Arg(0, seccomp.NE, own))
    add(deny, "prlimit64", seccomp.Arg(0, seccomp.NE, 0))
    return found


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _restrict_files(paths: Iterable[str]) -> None:
    call = _libc().syscall
    version = _check(call(_CREATE_RULESET, None, 0, _VERSION_FLAG), LANDLOCK)
    bits = max(count for since, count in _FILE_RIGHTS if since <= version)
    rules = _Ruleset(
        (1 << bits) - 1,
        _NETWORK_RIGHTS if version >= _NETWORK_VERSION else 0,
        _SCOPES if version >= _SCOPE_VERSION else 0,
    )
    size = 24 if version >= _SCOPE_VERSION else 16 if version >= _NETWORK_VERSION else 8
    ruleset = _check(call(_CREATE_RULESET, ctypes.byref(rules), size, 0), LANDLOCK)
    try:
        for path in paths:
            below = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                allowed = _PathBeneath(_READ_FILE | _READ_DIR, below)
                done = call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(allowed), 0)
                _check(done, LANDLOCK)
            finally:
                os.close(below)
        _check(call(_RESTRICT_SELF, ruleset, 0), LANDLOCK)
    finally:
        os.close(ruleset)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(confine()) + "\n")
