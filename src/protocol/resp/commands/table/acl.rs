//! The subcommands of ACL, which describe users.

use super::*;

#[rustfmt::skip]
pub(super) const ACL: &[Spec] = &[
    spec(Id::AclWhoAmI, "acl|whoami", 2, NO_KEY, SESSION, SLOW).documented("server", "6.0.0", "O(1)")
        .described("", "Return the name of the user associated to the current connection"),
    spec(Id::AclList, "acl|list", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "O(N). Where N is the number of configured users.")
        .described("", "List the current ACL rules in ACL config file format"),
    spec(Id::AclUsers, "acl|users", 2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "O(N). Where N is the number of configured users.")
        .described("", "List the username of all the configured ACL rules"),
    spec(Id::AclGetUser, "acl|getuser", 3, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "O(N). Where N is the number of password, command and pattern rules that the user has.")
        .described("username", "Get the rules for a specific ACL user"),
    spec(Id::AclCat, "acl|cat", -2, NO_KEY, SESSION, SLOW)
        .documented("server", "6.0.0", "O(1) since the categories and commands are a fixed set.")
        .described("[categoryname]", "List the ACL categories or the commands inside a category"),
    spec(Id::AclLog, "acl|log", -2, NO_KEY, ADMIN, ADMIN_CATEGORIES)
        .documented("server", "6.0.0", "O(N) with N being the number of entries shown.")
        .described("[count | RESET]", "List latest events denied because of ACLs in place"),
    spec(Id::AclDryRun, "acl|dryrun", -4, NO_KEY, ADMIN, ADMIN_CATEGORIES).documented("server", "7.0.0", "O(1).")
        .described("username command [arg [arg ...]]",
            "Returns whether the user can execute the given command without executing the command."),
    spec(Id::AclHelp, "acl|help", 2, NO_KEY, ALWAYS, SLOW).documented("server", "6.0.0", "O(1)").described("", HELP_SUMMARY),
];
