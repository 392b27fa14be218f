"""The exceptions of the package."""


class Error(Exception):
    """Base class of the package's exceptions."""


class KeyKind(Error, TypeError):
    """A key is a number and the table's keys are bytes, or the key is bytes and the table's keys are numbers."""


class NotTyped(Error, TypeError):
    """The table has values without columns, where a typed table was expected."""


class Damaged(Error):
    """The file is not a valid table, or the part that a lookup reads is damaged or was changed in place."""


class BakeFailed(Error, ValueError):
    """The rows cannot be baked. For a bad row, the message has the number of the row, counted from 1."""


class PublishFailed(Error):
    """A generation cannot be published, or a published table has no usable generation."""


class StoreFailed(PublishFailed, ConnectionError):
    """The object store cannot be reached, returned an error, or rejected the credentials."""


class ParentConflict(PublishFailed):
    """Another generation than the expected one is the newest: another publisher was first."""


class NotRunning(Error, ConnectionError):
    """The socket does not exist, or no process listens on it."""


class Refused(Error, ConnectionError):
    """The server runs, but this client was not admitted."""


class UntrustedServer(Error, ConnectionError):
    """The server runs as a user that this client does not trust. Nothing was sent."""


class TlsFailed(Error, ConnectionError):
    """TLS failed: for example, the server's certificate is not trusted, or the client lacks a certificate."""


class LoginFailed(Error, PermissionError):
    """The server requires a login, or rejected the user or the password."""


class NotPermitted(Error, PermissionError):
    """The connection's user may not send the request, or may not use the key."""


class DirectRefused(Refused):
    """The server does not transfer its table, or this process cannot use it."""


class TimedOut(Error, TimeoutError):
    """Connecting or a call timed out."""


class Closed(Error, ConnectionError):
    """The connection ended before the response was complete, or the table or the client was closed."""


class ProtocolError(Error):
    """The peer violated the protocol, possibly because it is not a Zero-KV server."""


class ServerError(Error):
    """The server responded with an error: for example, the value may be damaged."""


class KeyTypeChanged(ServerError):
    """The server replaced its table by one whose keys have another type, during an iteration or repeatedly during a call."""
