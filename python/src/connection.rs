//! A connection to a server, or to the nodes of a cluster.
//!
//! In: keys and ranges. Out: what the servers sent.

use std::sync::Arc;

use zero_kv::Key;
use zero_kv::client::request::{Ceiling, Cover, FirstRow, Floor, GetPage, LastRow};
use zero_kv::client::{Client, ClientError, ClusterClient, KeyRange, NearestRow, OwnedKey, ProjectedRows, Row};
use zero_kv::typed::Schema;

use crate::neighbors::{Nearest, Neighbor, RowSchemas};
use crate::ranges::Ranges;

/// A connection to a server, or connections to the nodes of a cluster.
pub(crate) enum Connection {
    Server(Client),
    Cluster(ClusterClient),
}

/// Rows in key order.
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// The range of the rows after these, if any.
    pub(crate) rest: Option<KeyRange>,
    pub(crate) schemas: RowSchemas,
}

/// Calls a method that both clients have.
macro_rules! call {
    ($connection:expr, $method:ident($($argument:expr),*)) => {
        match $connection {
            $crate::connection::Connection::Server(client) => client.$method($($argument),*),
            $crate::connection::Connection::Cluster(client) => client.$method($($argument),*),
        }
    };
}
pub(crate) use call;

impl Connection {
    /// Returns the client of a server, for requests that a cluster does not answer.
    pub(crate) fn server(&mut self) -> &mut Client {
        match self {
            Connection::Server(client) => client,
            Connection::Cluster(_) => unreachable!("the class Client connects to a server"),
        }
    }

    /// Returns the client of a cluster.
    pub(crate) fn cluster(&mut self) -> &mut ClusterClient {
        match self {
            Connection::Cluster(client) => client,
            Connection::Server(_) => unreachable!("the class ClusterClient connects to a cluster"),
        }
    }

    pub(crate) fn schema(&mut self) -> Result<Option<Arc<Schema>>, ClientError> {
        call!(self, schema())
    }

    pub(crate) fn get(&mut self, key: Key<'_>) -> Result<Option<Vec<u8>>, ClientError> {
        call!(self, get(key))
    }

    /// Passes the value of each key to `visit`, in the order of the keys.
    pub(crate) fn get_each(
        &mut self,
        keys: &[Key<'_>],
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> Result<(), ClientError> {
        match self {
            Connection::Server(client) => client.get_many_with(keys, |_, value| visit(value)),
            Connection::Cluster(client) => {
                client.get_many(keys)?.iter().for_each(|value| visit(value.as_deref()));
                Ok(())
            }
        }
    }

    /// Returns the rows of the columns with these names, or of all columns.
    pub(crate) fn columns(&mut self, keys: &[Key<'_>], names: Option<&[&str]>) -> Result<ProjectedRows, ClientError> {
        match names {
            None => call!(self, get_rows(keys)),
            Some(names) => call!(self, get_projected(keys, names)),
        }
    }

    pub(crate) fn first(&mut self) -> Result<Nearest, ClientError> {
        self.nearest(&[FirstRow])
    }

    pub(crate) fn last(&mut self) -> Result<Nearest, ClientError> {
        self.nearest(&[LastRow])
    }

    pub(crate) fn neighbors(&mut self, keys: &[Key<'_>], neighbor: Neighbor) -> Result<Nearest, ClientError> {
        let keys = keys.iter().copied();
        match neighbor {
            Neighbor::Floor => self.nearest(&keys.map(Floor::new).collect::<Result<Vec<_>, _>>()?),
            Neighbor::Ceiling => self.nearest(&keys.map(Ceiling::new).collect::<Result<Vec<_>, _>>()?),
        }
    }

    /// Requests the ranges that contain keys.
    pub(crate) fn ranges(&mut self, keys: &[Key<'_>]) -> Result<Ranges, ClientError> {
        match self {
            Connection::Server(client) => {
                let requests = keys.iter().copied().map(Cover::new).collect::<Result<Vec<_>, _>>()?;
                let (ranges, schema) = client.call_with_schema(&requests)?;
                Ok((ranges, RowSchemas::Common(schema)))
            }
            Connection::Cluster(client) => {
                let (ranges, schemas) = client.cover_many_with_schema(keys)?;
                Ok((ranges, RowSchemas::Each(schemas)))
            }
        }
    }

    /// Requests rows. Those of a server come from tables with the same schema; the nodes of a cluster can have tables
    /// with different schemas.
    fn nearest<R: NearestRow>(&mut self, requests: &[R]) -> Result<Nearest, ClientError> {
        match self {
            Connection::Server(client) => {
                let (rows, schema) = client.call_with_schema(requests)?;
                Ok((rows, RowSchemas::Common(schema)))
            }
            Connection::Cluster(client) => {
                let (rows, schemas) = client.call_with_schema(requests)?;
                Ok((rows, RowSchemas::Each(schemas)))
            }
        }
    }

    /// Returns the first rows of a range, or, if `is_backward` is true, the last rows. Requests their schema if it is
    /// needed.
    pub(crate) fn page(
        &mut self,
        range: &KeyRange,
        is_backward: bool,
        needs_schema: bool,
    ) -> Result<Page, ClientError> {
        let bounds = range.bounds();
        let client = match self {
            Connection::Server(client) => client,
            Connection::Cluster(client) => {
                let page = if is_backward { client.last_page(bounds) } else { client.first_page(bounds) }?;
                return Ok(Page { rows: page.rows, rest: page.rest, schemas: RowSchemas::Each(page.schemas) });
            }
        };
        let request = if is_backward { GetPage::last(bounds, 0) } else { GetPage::first(bounds, 0) }?;
        let (pages, schema) = match needs_schema {
            true => client.call_with_schema(&[request])?,
            false => (vec![client.call(request)?], None),
        };
        let rows = pages.iter().flat_map(|page| page.iter());
        let rows = rows.map(|(key, value)| (OwnedKey::from(key), value.to_vec())).collect();
        Ok(Page { rows, rest: pages.iter().find_map(|page| page.rest().cloned()), schemas: RowSchemas::Common(schema) })
    }
}
