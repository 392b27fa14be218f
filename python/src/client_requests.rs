//! The requests that the clients of a server and of a cluster have in common.
//!
//! In: keys and ranges. Out: what the servers sent. The classes `Client` and `ClusterClient` share the code that converts
//! Python objects to these requests.

use std::sync::Arc;

use zero_kv::client::request::{Ceiling, FirstRow, Floor, GetPage, LastRow, TypedRequest};
use zero_kv::client::{
    Client, ClientError, ClusterClient, KeyRange, NearestRow, OwnedKey, ProjectedRows, Row, RowsOrValues,
};
use zero_kv::typed::Schema;
use zero_kv::{Key, KeyKind};

/// The row nearest to each of some keys, and their schemas.
pub(crate) type Nearest = (Vec<Option<Row>>, RowSchemas);

/// Rows in key order.
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// The range of the rows after these, if any.
    pub(crate) rest: Option<KeyRange>,
    pub(crate) schemas: RowSchemas,
}

/// The schemas of rows.
pub(crate) enum RowSchemas {
    /// All rows have the same schema, or none.
    Common(Option<Arc<Schema>>),
    /// The schema of each row.
    Each(Vec<Option<Arc<Schema>>>),
}

impl RowSchemas {
    /// Returns the schema of the row at a position.
    pub(crate) fn of_row(&self, position: usize) -> Option<&Arc<Schema>> {
        match self {
            RowSchemas::Common(schema) => schema.as_ref(),
            RowSchemas::Each(schemas) => schemas[position].as_ref(),
        }
    }
}

/// Requests rows of a server, which come from tables with the same schema.
fn nearest_of_server<R: TypedRequest<Output = Option<Row>> + Copy>(
    client: &mut Client,
    requests: &[R],
) -> Result<Nearest, ClientError> {
    let (rows, schema) = client.call_with_schema(requests)?;
    Ok((rows, RowSchemas::Common(schema)))
}

/// Requests rows of a cluster, whose nodes can have tables with different schemas.
fn nearest_of_cluster<R: NearestRow>(client: &mut ClusterClient, requests: &[R]) -> Result<Nearest, ClientError> {
    let (rows, schemas) = client.call_with_schema(requests)?;
    Ok((rows, RowSchemas::Each(schemas)))
}

/// Requests for many keys and for rows. The methods of the clients have the same names.
pub(crate) trait Requests: Send {
    fn kind_of_keys(&mut self) -> Result<KeyKind, ClientError>;
    /// Passes the value of each key to `visit`, in the order of the keys.
    fn get_each<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        visit: impl FnMut(Option<&[u8]>),
    ) -> Result<(), ClientError>;
    fn rows_or_values<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<RowsOrValues, ClientError>;
    /// Returns the rows of the columns with these names, or of all columns.
    fn columns<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        names: Option<&[&str]>,
    ) -> Result<ProjectedRows, ClientError>;
    fn first(&mut self) -> Result<Nearest, ClientError>;
    fn last(&mut self) -> Result<Nearest, ClientError>;
    fn floors<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Nearest, ClientError>;
    fn ceilings<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Nearest, ClientError>;
    fn exist<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<bool>, ClientError>;
    /// Returns the first rows of a range, or, if `backward` is true, the last rows. Requests their schema if it is needed.
    fn page(&mut self, range: &KeyRange, backward: bool, needs_schema: bool) -> Result<Page, ClientError>;
}

/// Implements the requests whose methods both clients have. `$nearest` requests rows. The other methods follow in braces.
macro_rules! impl_requests {
    ($Client:ident, $nearest:ident { $($other:tt)* }) => {
        impl Requests for $Client {
            fn kind_of_keys(&mut self) -> Result<KeyKind, ClientError> {
                self.key_kind()
            }

            fn rows_or_values<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<RowsOrValues, ClientError> {
                self.get_rows_or_values(keys)
            }

            fn columns<'k, K: Into<Key<'k>> + Copy>(
                &mut self,
                keys: &[K],
                names: Option<&[&str]>,
            ) -> Result<ProjectedRows, ClientError> {
                match names {
                    None => self.get_rows(keys),
                    Some(names) => self.get_columns(keys, names),
                }
            }

            fn exist<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Vec<bool>, ClientError> {
                self.exists_many(keys)
            }

            fn first(&mut self) -> Result<Nearest, ClientError> {
                $nearest(self, &[FirstRow])
            }

            fn last(&mut self) -> Result<Nearest, ClientError> {
                $nearest(self, &[LastRow])
            }

            fn floors<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Nearest, ClientError> {
                let requests = keys.iter().map(|key| Floor::new(*key)).collect::<Result<Vec<_>, _>>()?;
                $nearest(self, &requests)
            }

            fn ceilings<'k, K: Into<Key<'k>> + Copy>(&mut self, keys: &[K]) -> Result<Nearest, ClientError> {
                let requests = keys.iter().map(|key| Ceiling::new(*key)).collect::<Result<Vec<_>, _>>()?;
                $nearest(self, &requests)
            }

            $($other)*
        }
    };
}

impl_requests!(Client, nearest_of_server {
    fn get_each<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> Result<(), ClientError> {
        self.get_many_with(keys, |_, value| visit(value))
    }

    fn page(&mut self, range: &KeyRange, backward: bool, needs_schema: bool) -> Result<Page, ClientError> {
        let request = match backward {
            false => GetPage::first(range.bounds(), 0),
            true => GetPage::last(range.bounds(), 0),
        }?;
        let (pages, schema) = match needs_schema {
            true => self.call_with_schema(&[request])?,
            false => (vec![self.call(request)?], None),
        };
        let rows = pages.iter().flat_map(|page| page.iter());
        let rows = rows.map(|(key, value)| (OwnedKey::from(key), value.to_vec())).collect();
        Ok(Page { rows, rest: pages.iter().find_map(|page| page.rest().cloned()), schemas: RowSchemas::Common(schema) })
    }
});

impl_requests!(ClusterClient, nearest_of_cluster {
    fn get_each<'k, K: Into<Key<'k>> + Copy>(
        &mut self,
        keys: &[K],
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> Result<(), ClientError> {
        self.get_many(keys)?.iter().for_each(|value| visit(value.as_deref()));
        Ok(())
    }

    fn page(&mut self, range: &KeyRange, backward: bool, _needs_schema: bool) -> Result<Page, ClientError> {
        let page = match backward {
            false => self.first_page(range.bounds()),
            true => self.last_page(range.bounds()),
        }?;
        Ok(Page { rows: page.rows, rest: page.rest, schemas: RowSchemas::Each(page.schemas) })
    }
});
