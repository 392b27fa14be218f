//! Command-line options that several programs share.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Arg, value_parser};

use crate::client::{Address, AddressError, Login, Options, TlsOptions};
use crate::replace::ReplaceRules;

/// The options of connections to a server.
#[derive(clap::Args, Clone)]
pub struct ServerArgs {
    /// Trust a server that runs as this user, a name or a number; root and you are always trusted
    /// [env: ZERO_KV_SERVER_USER]
    ///
    /// Without this option, a server that runs as another user is accepted only if no third user can write to the
    /// folder of its socket or to a folder above it.
    #[arg(long, global = true, value_name = "USER")]
    pub server_user: Option<String>,
    /// Read the password of the user in zkv+tls://user@host:port from this file
    /// [env: ZERO_KV_PASSWORD_FILE; ZERO_KV_PASSWORD has the password itself]
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Trust a server of zkv+tls:// whose certificate is signed by an authority in this PEM file
    /// [default: the authorities that the system trusts]
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Use the client certificate in this PEM file for zkv+tls://
    #[arg(long, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Use the private key in this PEM file for the certificate of --tls-cert
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Expect this name or IP address in the server's certificate [default: the host of zkv+tls://]
    #[arg(long, global = true, value_name = "NAME")]
    tls_server_name: Option<String>,
}

impl ServerArgs {
    /// Returns the client options for connections to `address`.
    ///
    /// # Errors
    /// Fails if `address` is not a valid address, or if there is a password file but the address names no user.
    pub fn options(&self, address: &OsStr) -> Result<Options, String> {
        let address = Address::parse(address).map_err(|error: AddressError| error.to_string())?;
        let login = match (&self.password_file, address.user()) {
            (None, _) => None,
            (Some(path), Some(user)) => Some(Login::with_password_file(user, path)),
            (Some(_), None) => {
                return Err(format!(
                    "{address}: --password-file needs a user in the address, as in zkv+tls://user@host:port"
                ));
            }
        };
        let tls = TlsOptions {
            ca_file: self.tls_ca.clone(),
            certificate_file: self.tls_cert.clone(),
            key_file: self.tls_key.clone(),
            server_name: self.tls_server_name.clone(),
        };
        Ok(Options { server_user: self.server_user.clone(), login, tls, ..Options::default() })
    }

    /// Returns the name of each option, and whether the option is given.
    pub fn given(&self) -> [(&'static str, bool); 6] {
        [
            ("--server-user", self.server_user.is_some()),
            ("--password-file", self.password_file.is_some()),
            ("--tls-ca", self.tls_ca.is_some()),
            ("--tls-cert", self.tls_cert.is_some()),
            ("--tls-key", self.tls_key.is_some()),
            ("--tls-server-name", self.tls_server_name.is_some()),
        ]
    }

    /// Returns hidden definitions of the options, for a command whose help must not show them.
    pub fn hidden() -> impl Iterator<Item = Arg> {
        let files = [
            ("password_file", "password-file"),
            ("tls_ca", "tls-ca"),
            ("tls_cert", "tls-cert"),
            ("tls_key", "tls-key"),
        ];
        let texts = [("server_user", "server-user"), ("tls_server_name", "tls-server-name")];
        let file = |(id, name)| Arg::new(id).long(name).value_parser(value_parser!(PathBuf)).hide(true);
        files.into_iter().map(file).chain(texts.into_iter().map(|(id, name)| Arg::new(id).long(name).hide(true)))
    }
}

/// The rules that a new table must meet to replace another one.
#[derive(clap::Args)]
pub struct ReplaceArgs {
    /// Reject a table with fewer rows, even if there is no table to replace
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    min_rows: u64,
    /// Reject a table that lost more of the old table's rows, such as 50%
    ///
    /// Without this option, only the loss of all rows is rejected.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    max_shrink: Option<u8>,
    /// Allow a table without rows to replace a table with rows
    #[arg(long, conflicts_with = "min_rows")]
    allow_empty: bool,
    /// Allow a table to replace a table whose keys have another type
    #[arg(long)]
    allow_key_type_change: bool,
}

impl ReplaceArgs {
    pub fn rules(&self) -> ReplaceRules {
        ReplaceRules {
            rows_min: self.min_rows,
            shrink_max_percent: self.max_shrink,
            allow_empty: self.allow_empty,
            allow_key_type_change: self.allow_key_type_change,
        }
    }
}

pub fn parse_percent(text: &str) -> Result<u8, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "expected a whole percentage from 0% to 100%, such as 50%".to_owned())
}

/// The options of a new generation of a published table.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct GenerationArgs {
    /// Add the canaries in this file, lines `key,digest` as `zkv canary` writes them; servers look them up before they
    /// serve the generation
    #[arg(long, value_name = "FILE", requires = "to")]
    pub canary: Option<PathBuf>,
    /// Add this text for people
    #[arg(long, value_name = "TEXT", requires = "to")]
    pub note: Option<String>,
    /// Publish only if generation N is the newest one; 0 means that the table must have none
    #[arg(long, value_name = "N", requires = "to")]
    pub parent: Option<u64>,
}

/// Returns the URL of a published table. Programs without the feature `object-store` reject every URL.
pub fn parse_url(text: &str) -> Result<String, &'static str> {
    match cfg!(feature = "object-store") {
        true => Ok(text.to_owned()),
        false => Err(
            "this program was built without the feature object-store: build it with the feature object-store or full",
        ),
    }
}
