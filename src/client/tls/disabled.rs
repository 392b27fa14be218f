//! The substitute for TLS in builds without the feature `tls`.

use std::io::{self, Read, Write};

use crate::client::options::TlsOptions;

/// The source of sessions. The type has no values, because this build does not support TLS.
#[derive(Debug)]
pub(in crate::client) enum TlsSource {}

/// A session. The type has no values, because this build does not support TLS.
#[derive(Debug)]
pub(in crate::client) enum TlsSession {}

impl TlsSource {
    pub(in crate::client) fn new(_: &str, _: &TlsOptions) -> Result<TlsSource, String> {
        Err("this program was built without TLS: build the crate zero-kv with the feature tls, or use the server's \
             Unix socket"
            .to_owned())
    }

    pub(in crate::client) fn start(&self) -> Result<Box<TlsSession>, String> {
        match *self {}
    }
}

impl TlsSession {
    pub(in crate::client) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(in crate::client) fn has_unsent(&self) -> bool {
        match *self {}
    }

    pub(in crate::client) fn encrypt(&mut self, _: &[u8]) -> usize {
        match *self {}
    }

    pub(in crate::client) fn send(&mut self, _: &mut impl Write) -> io::Result<()> {
        match *self {}
    }

    pub(in crate::client) fn decrypt(&mut self, _: &mut [u8]) -> Result<Option<usize>, String> {
        match *self {}
    }

    pub(in crate::client) fn receive(&mut self, _: &mut impl Read) -> io::Result<usize> {
        match *self {}
    }
}
