"""All errors of calls, as one tree.

LlmcError                    code                   HTTP  when
├── AuthFailed               AUTH_FAILED            401   no token, or a wrong one
├── Forbidden                FORBIDDEN              403   the token's scopes don't cover this
│   ├── PermissionDenied     PERMISSION_DENIED      403   the operating system or a policy says no
│   ├── InvalidPath          INVALID_PATH           403   outside the roots, or a link that leaves them
│   ├── CommandNotAllowed    COMMAND_NOT_ALLOWED    403   binary not on the allowlist
│   ├── KillForbidden        KILL_FORBIDDEN         403   pid 1, the server, its ancestors
│   ├── FeatureDisabled      FEATURE_DISABLED       403   the operator switched it off
│   ├── Declined             DECLINED               403   the user was asked, and did not agree
│   ├── ApprovalRequired     APPROVAL_REQUIRED      403   a person has to approve this call first
│   └── IsolationRequired    ISOLATION_REQUIRED     403   code that needs a sandbox, and there is none
├── NotFound                 NOT_FOUND              404   no such file, symbol, change or other thing
│   ├── ProcessNotFound      PROCESS_NOT_FOUND      404   not, no longer, or not this session's
│   ├── ProcessGone          PROCESS_GONE           410   the replica that ran it has ended, and the program with it
│   └── HandleNotFound       HANDLE_NOT_FOUND       404   never made, another principal's or project's, or too old
├── Conflict                 CONFLICT               409   the target exists already
│   ├── ShaMismatch          SHA_MISMATCH           409   the file is not what the caller thinks it is
│   ├── Stale                STALE                  409   the source changed since
│   └── ResourceBusy         RESOURCE_BUSY          409   somebody else holds the lease, or the process ran short
├── TooLarge                 TOO_LARGE              413   the request
│   └── OutputTooLarge       OUTPUT_TOO_LARGE       413   what it would touch or return
├── Unprocessable            BAD_ARGS               422   what is below
│   ├── UnknownTool          UNKNOWN_TOOL           422   no tool of that name; the hint has the nearest
│   ├── BadArgs              BAD_ARGS               422   a breach of the schema
│   ├── InvalidArgument      INVALID_ARGUMENT       422   fits the schema, means nothing
│   ├── IsDirectory          IS_DIRECTORY           422   a file was expected, or `recursive`
│   ├── NotADirectory        NOT_A_DIRECTORY        422   a part of the path is a file
│   ├── NotAFile             NOT_A_FILE             422   a device, a FIFO, a socket
│   ├── PatchCountMismatch   PATCH_COUNT_MISMATCH   422   there more or less often; the message shows where
│   └── PatchFailed          PATCH_FAILED           422   a hunk does not apply; nothing was changed
├── RateLimited              RATE_LIMITED           429   too many calls, or too many at once; wait
│   └── ProcLimitExceeded    PROC_LIMIT_EXCEEDED    429   too many programs of this session or server; stop one
├── Internal                 INTERNAL               500   a bug of ours; the log has the traceback
│   └── WriteFailed          WRITE_FAILED           500   disk full, I/O error
├── FeatureUnavailable       FEATURE_UNAVAILABLE    501   this machine can't; the message says why
├── ReplicaUnreachable       REPLICA_UNREACHABLE    502   the replica that runs the process lives, and can't be reached
├── ShuttingDown             SHUTTING_DOWN          503   the server takes no new calls; another replica does
├── Timeout                  TIMEOUT                504   took longer than allowed; what was printed is in the reply
└── Cancelled                CANCELLED              499   the caller took the call back; never on the wire

Raise these; never return an error string. `hint` suggests to the agent what to do next.
"""

import errno
import os

_MAX_MESSAGE = 1_200  # characters; a message may quote an argument of any length


class LlmcError(Exception):
    """Base of all errors that reach a caller."""

    code = "INTERNAL"
    http_status = 500

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if len(message) > _MAX_MESSAGE:
            self.message = f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"
        self.hint = hint

    def envelope(self, correlation_id: str) -> dict[str, str]:
        """The representation of an error in every reply."""
        body = {"code": self.code, "message": self.message}
        if self.hint:
            body["hint"] = self.hint
        body["correlation_id"] = correlation_id
        return body


class AuthFailed(LlmcError):
    code, http_status = "AUTH_FAILED", 401


class Forbidden(LlmcError):
    code, http_status = "FORBIDDEN", 403


class PermissionDenied(Forbidden):
    code = "PERMISSION_DENIED"


class InvalidPath(Forbidden):
    code = "INVALID_PATH"


class CommandNotAllowed(Forbidden):
    code = "COMMAND_NOT_ALLOWED"


class KillForbidden(Forbidden):
    code = "KILL_FORBIDDEN"


class FeatureDisabled(Forbidden):
    code = "FEATURE_DISABLED"


class Declined(Forbidden):
    code = "DECLINED"


class ApprovalRequired(Forbidden):
    """A call that waits for a person; `approval_id` is what that person answers."""

    code = "APPROVAL_REQUIRED"

    def __init__(self, message: str, *, approval_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.approval_id = approval_id

    def envelope(self, correlation_id: str) -> dict[str, str]:
        return {**super().envelope(correlation_id), "approval_id": self.approval_id}


class IsolationRequired(Forbidden):
    code = "ISOLATION_REQUIRED"


class NotFound(LlmcError):
    code, http_status = "NOT_FOUND", 404


class ProcessNotFound(NotFound):
    code = "PROCESS_NOT_FOUND"


class ProcessGone(NotFound):
    code, http_status = "PROCESS_GONE", 410


class HandleNotFound(NotFound):
    code = "HANDLE_NOT_FOUND"


class Conflict(LlmcError):
    code, http_status = "CONFLICT", 409


class ShaMismatch(Conflict):
    code = "SHA_MISMATCH"


class Stale(Conflict):
    code = "STALE"


class ResourceBusy(Conflict):
    code = "RESOURCE_BUSY"


class TooLarge(LlmcError):
    code, http_status = "TOO_LARGE", 413


class OutputTooLarge(TooLarge):
    code = "OUTPUT_TOO_LARGE"


class Unprocessable(LlmcError):
    code, http_status = "BAD_ARGS", 422


class UnknownTool(Unprocessable):
    code = "UNKNOWN_TOOL"


class BadArgs(Unprocessable):
    code = "BAD_ARGS"


class InvalidArgument(Unprocessable):
    code = "INVALID_ARGUMENT"


class IsDirectory(Unprocessable):
    code = "IS_DIRECTORY"


class NotADirectory(Unprocessable):
    code = "NOT_A_DIRECTORY"


class NotAFile(Unprocessable):
    code = "NOT_A_FILE"


class PatchCountMismatch(Unprocessable):
    code = "PATCH_COUNT_MISMATCH"


class PatchFailed(Unprocessable):
    code = "PATCH_FAILED"


class RateLimited(LlmcError):
    code, http_status = "RATE_LIMITED", 429

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after  # seconds


class ProcLimitExceeded(RateLimited):
    code = "PROC_LIMIT_EXCEEDED"


class Internal(LlmcError):
    code, http_status = "INTERNAL", 500


class WriteFailed(Internal):
    code = "WRITE_FAILED"


class FeatureUnavailable(LlmcError):
    code, http_status = "FEATURE_UNAVAILABLE", 501


class ReplicaUnreachable(LlmcError):
    code, http_status = "REPLICA_UNREACHABLE", 502


class ShuttingDown(LlmcError):
    code, http_status = "SHUTTING_DOWN", 503


class Timeout(LlmcError):
    code, http_status = "TIMEOUT", 504


class Cancelled(LlmcError):
    code, http_status = "CANCELLED", 499


_BY_ERRNO: dict[int, tuple[type[LlmcError], str]] = {
    errno.ENOENT: (NotFound, "no such file or directory"),
    errno.ENOTDIR: (NotADirectory, "a part of the path is not a directory"),
    errno.EISDIR: (IsDirectory, "is a directory"),
    errno.EACCES: (PermissionDenied, "permission denied"),
    errno.EPERM: (PermissionDenied, "operation not permitted"),
    errno.EROFS: (PermissionDenied, "read-only file system"),
    errno.EXDEV: (InvalidPath, "leads outside the allowed roots"),
    errno.ELOOP: (InvalidPath, "too many symbolic links"),
    errno.ENAMETOOLONG: (BadArgs, "name too long"),
    errno.E2BIG: (BadArgs, "arguments too long"),
    errno.EINVAL: (BadArgs, "not a valid path"),
    errno.EEXIST: (Conflict, "exists already"),
    errno.ENOTEMPTY: (Conflict, "directory not empty"),
    errno.ENOSPC: (WriteFailed, "no space left on device"),
    errno.EDQUOT: (WriteFailed, "disk quota exceeded"),
    errno.EFBIG: (WriteFailed, "file too large"),
    errno.EIO: (WriteFailed, "input/output error"),
    errno.EBUSY: (ResourceBusy, "is changing too fast to be opened safely"),
    errno.EAGAIN: (ResourceBusy, "temporarily unavailable; too many processes or threads may run"),
    errno.ETIMEDOUT: (Timeout, "did not answer in time"),
    errno.ENXIO: (NotAFile, "is not a regular file"),
}


_SHORTAGES: dict[int, str] = {
    errno.EMFILE: "Too many files are open in the server: end programs and calls, or raise its limit (ulimit -n).",
    errno.ENFILE: "Too many files are open on this machine: end programs, or raise fs.file-max.",
    errno.ENOMEM: "This machine has too little memory left: end programs.",
}


def shortage(exc: BaseException) -> ResourceBusy | None:
    """What to tell a caller if an error means that the process has run out of something for the moment."""
    number = exc.errno if isinstance(exc, OSError) else None
    if isinstance(exc, ImportError):  # a library that can't be opened says why in words only
        number = next((one for one in _SHORTAGES if os.strerror(one) in str(exc)), None)
    if number in _SHORTAGES:
        return ResourceBusy(f"the server has run short: {os.strerror(number).lower()}", hint=_SHORTAGES[number])
    cause = exc.__cause__ or exc.__context__
    return None if cause is None else shortage(cause)


def shortage_now() -> ResourceBusy | None:
    """The same, found by trying: some libraries say no more than that a file can't be opened."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as exc:
        return shortage(exc)
    return None


def from_oserror(exc: OSError, shown_path: str) -> LlmcError:
    """Translate the error of a system call; `shown_path` is the path as the caller wrote it."""
    if short := shortage(exc):
        return short
    number = exc.errno or 0
    kind, words = _BY_ERRNO.get(number, (Internal, os.strerror(number).lower()))
    return kind(f"{shown_path}: {words}")
