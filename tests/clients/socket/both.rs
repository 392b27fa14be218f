//! One interface to the blocking client and the client on tokio, so that tests run with both.

use std::ffi::OsStr;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use zero_kv::KeyType;
use zero_kv::client::request::Floor;
use zero_kv::client::{AsyncClient, Client, ClientError, Options, ProjectedRows, Row, RowsOrValues};
use zero_kv::typed::{OwnedRow, Schema};

pub(crate) type CallResult<T> = Result<T, ClientError>;

/// Declares methods that both clients have under the same name.
macro_rules! same_methods {
    ($(fn $method:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        pub(crate) trait SameMethods {
            $(fn $method(&mut self, $($arg: $type),*) -> CallResult<$result>;)*
        }

        impl SameMethods for Client {
            $(fn $method(&mut self, $($arg: $type),*) -> CallResult<$result> {
                Client::$method(self, $($arg),*)
            })*
        }

        impl SameMethods for OnTokio {
            $(fn $method(&mut self, $($arg: $type),*) -> CallResult<$result> {
                self.runtime.block_on(self.client.$method($($arg),*))
            })*
        }
    };
}

same_methods! {
    fn get(key: &[u8]) -> Option<Vec<u8>>;
    fn get_many_with(keys: &[u64], visit: impl FnMut(usize, Option<&[u8]>)) -> ();
    fn get_many(keys: &[&[u8]]) -> Vec<Option<Vec<u8>>>;
    fn contains_many(keys: &[u64]) -> Vec<bool>;
    fn floor(key: u64) -> Option<Row>;
    fn floor_many(keys: &[u64]) -> Vec<Option<Row>>;
    fn ceiling_many(keys: &[u64]) -> Vec<Option<Row>>;
    fn schema() -> Option<Arc<Schema>>;
    fn get_row(key: u64) -> Option<OwnedRow>;
    fn get_projected(keys: &[u64], columns: &[&str]) -> ProjectedRows;
    fn get_rows(keys: &[u64]) -> ProjectedRows;
    fn get_rows_or_values(keys: &[u64]) -> RowsOrValues;
    fn call_with_schema(requests: &[Floor<'_>]) -> (Vec<Option<Row>>, Option<Arc<Schema>>);
    fn ping() -> ();
    fn key_type() -> KeyType;
    fn reload() -> u64;
}

/// A client of either kind.
pub(crate) trait AnyClient: SameMethods + Sized + Send + 'static {
    fn connect(address: impl AsRef<OsStr>, options: &Options) -> CallResult<Self>;
    fn get_number(&mut self, key: u64) -> CallResult<Option<Vec<u8>>>;
    fn rows(&mut self, backward: bool) -> CallResult<Vec<Row>>;
    fn count(&mut self) -> CallResult<u64>;
    fn expect_key_type(&mut self, key_type: KeyType);
}

impl AnyClient for Client {
    fn connect(address: impl AsRef<OsStr>, options: &Options) -> CallResult<Self> {
        Client::connect_with(address, options)
    }

    fn get_number(&mut self, key: u64) -> CallResult<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    fn rows(&mut self, backward: bool) -> CallResult<Vec<Row>> {
        if backward { Client::iter(self).rev().collect() } else { Client::iter(self).collect() }
    }

    fn count(&mut self) -> CallResult<u64> {
        Client::count(self, ..)
    }

    fn expect_key_type(&mut self, key_type: KeyType) {
        Client::expect_key_type(self, key_type);
    }
}

/// A client on tokio with its own runtime.
pub(crate) struct OnTokio {
    runtime: Runtime,
    client: AsyncClient,
}

impl AnyClient for OnTokio {
    fn connect(address: impl AsRef<OsStr>, options: &Options) -> CallResult<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(AsyncClient::connect_with(address, options))?;
        Ok(OnTokio { runtime, client })
    }

    fn get_number(&mut self, key: u64) -> CallResult<Option<Vec<u8>>> {
        self.runtime.block_on(self.client.get_with(key, |value| value.map(<[u8]>::to_vec)))
    }

    fn rows(&mut self, backward: bool) -> CallResult<Vec<Row>> {
        self.runtime.block_on(async {
            let (mut rows, mut taken) = (self.client.iter(), Vec::new());
            while let Some(row) = if backward { rows.next_back().await? } else { rows.next().await? } {
                taken.push(row);
            }
            Ok(taken)
        })
    }

    fn count(&mut self) -> CallResult<u64> {
        self.runtime.block_on(self.client.count(..))
    }

    fn expect_key_type(&mut self, key_type: KeyType) {
        self.client.expect_key_type(key_type);
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
