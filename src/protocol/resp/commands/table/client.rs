//! The subcommands of CLIENT.

use super::*;

#[rustfmt::skip]
pub(super) const CLIENT: &[Spec] = &[
    spec(Id::ClientSetInfo, "client|setinfo", 4, NO_KEY, SESSION, SLOW_CONNECTION).documented("connection", "7.2.0", "O(1)")
        .described("<LIB-NAME libname | LIB-VER libver>", "Set client or connection specific info"),
    spec(Id::ClientSetName, "client|setname", 3, NO_KEY, SESSION, SLOW_CONNECTION).documented("connection", "2.6.9", "O(1)")
        .described("connection-name", "Set the current connection name"),
    spec(Id::ClientGetName, "client|getname", 2, NO_KEY, SESSION, SLOW_CONNECTION).documented("connection", "2.6.9", "O(1)")
        .described("", "Get the current connection name"),
    spec(Id::ClientId, "client|id", 2, NO_KEY, SESSION, SLOW_CONNECTION).documented("connection", "5.0.0", "O(1)")
        .described("", "Returns the client ID for the current connection"),
    spec(Id::ClientInfo, "client|info", 2, NO_KEY, SESSION, SLOW_CONNECTION).documented("connection", "6.2.0", "O(1)")
        .described("", "Returns information about the current client connection.").tips(&["nondeterministic_output"]),
    spec(Id::ClientList, "client|list", -2, NO_KEY, ADMIN, &["@admin", "@slow", "@dangerous", "@connection"])
        .documented("connection", "2.4.0", "O(N) where N is the number of client connections")
        .described("[TYPE type] [ID client-id [client-id ...]]", "Get the list of client connections")
        .tips(&["nondeterministic_output"]),
    spec(Id::ClientNoEvict, "client|no-evict", 3, NO_KEY, ADMIN, &["@admin", "@slow", "@dangerous", "@connection"])
        .documented("connection", "7.0.0", "O(1)")
        .described("<ON | OFF>", "Set client eviction mode for the current connection"),
    spec(Id::ClientNoTouch, "client|no-touch", 3, NO_KEY, SESSION, SLOW_CONNECTION).documented("connection", "7.2.0", "O(1)")
        .described("<ON | OFF>",
            "Controls whether commands sent by the client will alter the LRU/LFU of the keys they access"),
    spec(Id::ClientHelp, "client|help", 2, NO_KEY, ALWAYS, SLOW_CONNECTION).documented("connection", "5.0.0", "O(1)")
        .described("", HELP_SUMMARY),
    spec(Id::ClientKill, "client|kill", -3, NO_KEY, ADMIN, ADMIN_CONNECTION)
        .documented("connection", "2.4.0", "O(N) where N is the number of client connections")
        .described("<ip:port | <ID client-id | TYPE <NORMAL | MASTER | REPLICA | PUBSUB> | USER username | ADDR ip:port | LADDR ip:port | SKIPME yes/no | MAXAGE maxage> [...]>", "Kill the connection of a client"),
    spec(Id::ClientReply, "client|reply", 3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "3.2.0", "O(1)")
        .described("<ON | OFF | SKIP>", "Instruct the server whether to reply to commands"),
    spec(Id::ClientUnpause, "client|unpause", 2, NO_KEY, ADMIN, ADMIN_CONNECTION)
        .documented("connection", "6.2.0", "O(N) Where N is the number of paused clients")
        .described("", "Resume processing of clients that were paused"),
    spec(Id::ClientUnblock, "client|unblock", -3, NO_KEY, ADMIN, ADMIN_CONNECTION)
        .documented("connection", "5.0.0", "O(log N) where N is the number of client connections")
        .described("client-id [TIMEOUT | ERROR]", "Unblock a client blocked in a blocking command from a different connection"),
    spec(Id::ClientTracking, "client|tracking", -3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.0.0", "O(1). Some options may introduce additional complexity.")
        .described("<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]", "Enable or disable server assisted client side caching support"),
    spec(Id::ClientTrackingInfo, "client|trackinginfo", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.2.0", "O(1)")
        .described("", "Return information about server assisted client side caching for the current connection"),
    spec(Id::ClientGetRedir, "client|getredir", 2, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.0.0", "O(1)")
        .described("", "Get tracking notifications redirection client ID if any"),
    spec(Id::ClientCaching, "client|caching", 3, NO_KEY, SESSION, SLOW_CONNECTION)
        .documented("connection", "6.0.0", "O(1)")
        .described("<YES | NO>", "Instruct the server about tracking or not keys in the next request"),
];
