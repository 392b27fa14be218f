//! The methods of both clients for requests about the server, written once for both.
//!
//! In: logins, and requests without keys. Out: facts about the server. The macro expands as in
//! [`methods`](super::methods).

#[cfg(feature = "tokio")]
use super::AsyncClient;
use super::Client;
use super::error::ClientError;
use super::info::Info;
use super::login::Login;
use super::request::{Authenticate, GetInfo, GetTopology, Ping, Reload, Rollback};

macro_rules! impl_server_methods {
    ($Client:ident, [$($async:tt)?], [$($await:tt)*]) => {
        /// Requests about the server.
        impl $Client {
            /// Sends a request without a key and waits for the response. The request succeeds for tables with either
            /// kind of keys.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn ping(&mut self) -> Result<(), ClientError> {
                self.call(Ping)$($await)*
            }

            /// Returns facts about the server and its table.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn info(&mut self) -> Result<Info, ClientError> {
                self.call(GetInfo)$($await)*
            }

            /// Returns the topology of the cluster that the server is a node of, as JSON: see docs/CLUSTER.md. Returns
            /// `None` if the server is not a node of a cluster, or has no topology yet.
            ///
            /// # Errors
            /// [`ClientError::Server`] from a server that does not support the request, and the errors of
            /// [`Self::get`].
            pub $($async)? fn topology(&mut self) -> Result<Option<String>, ClientError> {
                self.call(GetTopology)$($await)*
            }

            /// Logs in as a user of the server. From then on, the client has the permissions of this user, even after
            /// it reconnects. Over the Unix socket, a client that does not log in has all permissions.
            ///
            /// # Errors
            /// - [`ClientError::LoginFailed`] if the user is unknown or disabled, or if the password is wrong. The
            ///   server delays the response to a failed login. The connection keeps its previous permissions.
            /// - The errors of [`Self::get`].
            pub $($async)? fn authenticate(
                &mut self,
                user: &str,
                password: impl AsRef<[u8]>,
            ) -> Result<(), ClientError> {
                let login = Login::new(user, password.as_ref());
                let authenticate = Authenticate::new(&login);
                self.call(authenticate.map_err(|problem| self.target.configuration(problem))?)$($await)*?;
                self.login = Some(login);
                Ok(())
            }

            /// Makes the server reload its file. Returns the number of the attempt, without waiting until the attempt
            /// ends. [`Self::info`] reports the last completed attempt: its number as `reload_done`, and its outcome as
            /// `reload_last`.
            ///
            /// # Errors
            /// [`ClientError::Server`] if this client may not send the request, and the errors of [`Self::get`]. The
            /// request is never retried.
            pub $($async)? fn reload(&mut self) -> Result<u64, ClientError> {
                self.call(Reload)$($await)*
            }

            /// Makes the server go back to the previous generation. Returns the number of the attempt, like
            /// [`Self::reload`].
            ///
            /// # Errors
            /// The errors of [`Self::reload`].
            pub $($async)? fn rollback(&mut self) -> Result<u64, ClientError> {
                self.call(Rollback)$($await)*
            }
        }
    };
}

impl_server_methods!(Client, [], []);
#[cfg(feature = "tokio")]
impl_server_methods!(AsyncClient, [async], [.await]);
