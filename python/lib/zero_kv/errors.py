"""What can fail, one class each."""


class Error(Exception):
    """All that this package raises of its own."""


class KeyKind(Error, TypeError):
    """A key is a number where the table's keys are bytes, or the other way around."""


class Damaged(Error):
    """A file is not a whole table: it was damaged, or changed in place, where the answer is."""


class BakeFailed(Error, ValueError):
    """Rows do not make a table. The message says which row, counted from 1."""


class NotRunning(Error, ConnectionError):
    """There is no such socket, or nobody listens on it."""


class Refused(Error, ConnectionError):
    """The server is there, and this client may not ask it."""


class UntrustedServer(Error, ConnectionError):
    """The server runs as a user that this client does not trust. Nothing was sent."""


class DirectRefused(Refused):
    """The server does not hand its table over, or what it hands over cannot be looked up in."""


class TimedOut(Error, TimeoutError):
    """Connecting or a call took longer than it may."""


class Closed(Error, ConnectionError):
    """The connection ended before the answer did."""


class ProtocolError(Error):
    """What arrived is not an answer of a Zero-KV server."""


class ServerError(Error):
    """The server answered with an error: the table's keys may be of the other kind, or the value is damaged."""
