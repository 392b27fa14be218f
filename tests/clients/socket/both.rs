//! One interface to the blocking client and the client on tokio, so that tests run with both.

use std::path::Path;

use tokio::runtime::{Builder, Runtime};
use zero_kv::client::{AsyncClient, Client, ClientError, Options, Row};

pub(crate) type CallResult<T> = Result<T, ClientError>;

/// A client of either kind.
pub(crate) trait AnyClient: Sized + Send + 'static {
    fn connect(socket: &Path, options: &Options) -> CallResult<Self>;
    fn get(&mut self, key: &[u8]) -> CallResult<Option<Vec<u8>>>;
    fn get_number(&mut self, key: u64) -> CallResult<Option<Vec<u8>>>;
    fn get_many_with(&mut self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> CallResult<()>;
    fn get_many(&mut self, keys: &[&[u8]]) -> CallResult<Vec<Option<Vec<u8>>>>;
    fn exists_many(&mut self, keys: &[u64]) -> CallResult<Vec<bool>>;
    fn floor(&mut self, key: u64) -> CallResult<Option<Row>>;
    fn floor_many(&mut self, keys: &[u64]) -> CallResult<Vec<Option<Row>>>;
    fn ceiling_many(&mut self, keys: &[u64]) -> CallResult<Vec<Option<Row>>>;
    fn rows(&mut self, backward: bool) -> CallResult<Vec<Row>>;
    fn count(&mut self) -> CallResult<u64>;
    fn ping(&mut self) -> CallResult<()>;
    fn reload(&mut self) -> CallResult<u64>;
}

impl AnyClient for Client {
    fn connect(socket: &Path, options: &Options) -> CallResult<Self> {
        Client::connect_with(socket, options)
    }

    fn get(&mut self, key: &[u8]) -> CallResult<Option<Vec<u8>>> {
        Client::get(self, key)
    }

    fn get_number(&mut self, key: u64) -> CallResult<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    fn get_many_with(&mut self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> CallResult<()> {
        Client::get_many_with(self, keys, visit)
    }

    fn get_many(&mut self, keys: &[&[u8]]) -> CallResult<Vec<Option<Vec<u8>>>> {
        Client::get_many(self, keys)
    }

    fn exists_many(&mut self, keys: &[u64]) -> CallResult<Vec<bool>> {
        Client::exists_many(self, keys)
    }

    fn floor(&mut self, key: u64) -> CallResult<Option<Row>> {
        Client::floor(self, key)
    }

    fn floor_many(&mut self, keys: &[u64]) -> CallResult<Vec<Option<Row>>> {
        Client::floor_many(self, keys)
    }

    fn ceiling_many(&mut self, keys: &[u64]) -> CallResult<Vec<Option<Row>>> {
        Client::ceiling_many(self, keys)
    }

    fn rows(&mut self, backward: bool) -> CallResult<Vec<Row>> {
        if backward { Client::rows(self).rev().collect() } else { Client::rows(self).collect() }
    }

    fn count(&mut self) -> CallResult<u64> {
        Client::count(self, ..)
    }

    fn ping(&mut self) -> CallResult<()> {
        Client::ping(self)
    }

    fn reload(&mut self) -> CallResult<u64> {
        Client::reload(self)
    }
}

/// A client on tokio with its own runtime.
pub(crate) struct OnTokio {
    runtime: Runtime,
    client: AsyncClient,
}

impl AnyClient for OnTokio {
    fn connect(socket: &Path, options: &Options) -> CallResult<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(AsyncClient::connect_with(socket, options))?;
        Ok(OnTokio { runtime, client })
    }

    fn get(&mut self, key: &[u8]) -> CallResult<Option<Vec<u8>>> {
        self.runtime.block_on(self.client.get(key))
    }

    fn get_number(&mut self, key: u64) -> CallResult<Option<Vec<u8>>> {
        self.runtime.block_on(self.client.get_with(key, |value| value.map(<[u8]>::to_vec)))
    }

    fn get_many_with(&mut self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> CallResult<()> {
        self.runtime.block_on(self.client.get_many_with(keys, visit))
    }

    fn get_many(&mut self, keys: &[&[u8]]) -> CallResult<Vec<Option<Vec<u8>>>> {
        self.runtime.block_on(self.client.get_many(keys))
    }

    fn exists_many(&mut self, keys: &[u64]) -> CallResult<Vec<bool>> {
        self.runtime.block_on(self.client.exists_many(keys))
    }

    fn floor(&mut self, key: u64) -> CallResult<Option<Row>> {
        self.runtime.block_on(self.client.floor(key))
    }

    fn floor_many(&mut self, keys: &[u64]) -> CallResult<Vec<Option<Row>>> {
        self.runtime.block_on(self.client.floor_many(keys))
    }

    fn ceiling_many(&mut self, keys: &[u64]) -> CallResult<Vec<Option<Row>>> {
        self.runtime.block_on(self.client.ceiling_many(keys))
    }

    fn rows(&mut self, backward: bool) -> CallResult<Vec<Row>> {
        self.runtime.block_on(async {
            let (mut rows, mut taken) = (self.client.rows(), Vec::new());
            while let Some(row) = if backward { rows.next_back().await? } else { rows.next().await? } {
                taken.push(row);
            }
            Ok(taken)
        })
    }

    fn count(&mut self) -> CallResult<u64> {
        self.runtime.block_on(self.client.count(..))
    }

    fn ping(&mut self) -> CallResult<()> {
        self.runtime.block_on(self.client.ping())
    }

    fn reload(&mut self) -> CallResult<u64> {
        self.runtime.block_on(self.client.reload())
    }
}

/// Runs each test once with either client.
macro_rules! with_both {
    ($($test:ident),* $(,)?) => {
        mod blocking {
            $(#[test] fn $test() { super::$test::<zero_kv::client::Client>(); })*
        }

        mod on_tokio {
            $(#[test] fn $test() { super::$test::<crate::clients::socket::both::OnTokio>(); })*
        }
    };
}

pub(crate) use with_both;
