//! The blocking client and that on tokio, asked alike.

use std::path::Path;

use tokio::runtime::{Builder, Runtime};
use zero_kv::client::{AsyncClient, Client, ClientError, Options, Row};

pub(crate) type Asked<T> = Result<T, ClientError>;

/// What both clients answer.
pub(crate) trait Asks: Sized + Send + 'static {
    fn connect(socket: &Path, options: &Options) -> Asked<Self>;
    fn get(&mut self, key: &[u8]) -> Asked<Option<Vec<u8>>>;
    fn get_number(&mut self, key: u64) -> Asked<Option<Vec<u8>>>;
    fn get_many_with(&mut self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> Asked<()>;
    fn get_many(&mut self, keys: &[&[u8]]) -> Asked<Vec<Option<Vec<u8>>>>;
    fn exists_many(&mut self, keys: &[u64]) -> Asked<Vec<bool>>;
    fn floor(&mut self, key: u64) -> Asked<Option<Row>>;
    fn rows(&mut self, backward: bool) -> Asked<Vec<Row>>;
    fn count(&mut self) -> Asked<u64>;
    fn ping(&mut self) -> Asked<()>;
    fn reload(&mut self) -> Asked<u64>;
}

impl Asks for Client {
    fn connect(socket: &Path, options: &Options) -> Asked<Self> {
        Client::connect_with(socket, options)
    }

    fn get(&mut self, key: &[u8]) -> Asked<Option<Vec<u8>>> {
        Client::get(self, key)
    }

    fn get_number(&mut self, key: u64) -> Asked<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    fn get_many_with(&mut self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> Asked<()> {
        Client::get_many_with(self, keys, visit)
    }

    fn get_many(&mut self, keys: &[&[u8]]) -> Asked<Vec<Option<Vec<u8>>>> {
        Client::get_many(self, keys)
    }

    fn exists_many(&mut self, keys: &[u64]) -> Asked<Vec<bool>> {
        Client::exists_many(self, keys)
    }

    fn floor(&mut self, key: u64) -> Asked<Option<Row>> {
        Client::floor(self, key)
    }

    fn rows(&mut self, backward: bool) -> Asked<Vec<Row>> {
        if backward { Client::rows(self).rev().collect() } else { Client::rows(self).collect() }
    }

    fn count(&mut self) -> Asked<u64> {
        Client::count(self, ..)
    }

    fn ping(&mut self) -> Asked<()> {
        Client::ping(self)
    }

    fn reload(&mut self) -> Asked<u64> {
        Client::reload(self)
    }
}

/// The client on tokio, with a runtime of its own.
pub(crate) struct OnTokio {
    runtime: Runtime,
    client: AsyncClient,
}

impl Asks for OnTokio {
    fn connect(socket: &Path, options: &Options) -> Asked<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(AsyncClient::connect_with(socket, options))?;
        Ok(OnTokio { runtime, client })
    }

    fn get(&mut self, key: &[u8]) -> Asked<Option<Vec<u8>>> {
        self.runtime.block_on(self.client.get(key))
    }

    fn get_number(&mut self, key: u64) -> Asked<Option<Vec<u8>>> {
        self.runtime.block_on(self.client.get_with(key, |value| value.map(<[u8]>::to_vec)))
    }

    fn get_many_with(&mut self, keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> Asked<()> {
        self.runtime.block_on(self.client.get_many_with(keys, visit))
    }

    fn get_many(&mut self, keys: &[&[u8]]) -> Asked<Vec<Option<Vec<u8>>>> {
        self.runtime.block_on(self.client.get_many(keys))
    }

    fn exists_many(&mut self, keys: &[u64]) -> Asked<Vec<bool>> {
        self.runtime.block_on(self.client.exists_many(keys))
    }

    fn floor(&mut self, key: u64) -> Asked<Option<Row>> {
        self.runtime.block_on(self.client.floor(key))
    }

    fn rows(&mut self, backward: bool) -> Asked<Vec<Row>> {
        self.runtime.block_on(async {
            let (mut rows, mut taken) = (self.client.rows(), Vec::new());
            while let Some(row) = if backward { rows.next_back().await? } else { rows.next().await? } {
                taken.push(row);
            }
            Ok(taken)
        })
    }

    fn count(&mut self) -> Asked<u64> {
        self.runtime.block_on(self.client.count(..))
    }

    fn ping(&mut self) -> Asked<()> {
        self.runtime.block_on(self.client.ping())
    }

    fn reload(&mut self) -> Asked<u64> {
        self.runtime.block_on(self.client.reload())
    }
}

/// Each of these tests, once with either client.
macro_rules! with_both {
    ($($test:ident),* $(,)?) => {
        mod blocking {
            $(#[test] fn $test() { super::$test::<zero_kv::client::Client>(); })*
        }

        mod on_tokio {
            $(#[test] fn $test() { super::$test::<crate::both::OnTokio>(); })*
        }
    };
}

pub(crate) use with_both;
