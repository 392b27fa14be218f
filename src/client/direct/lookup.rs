//! The lookups of direct mode: those of [`Lookup`] in the current generation, and in one generation.

use std::sync::Arc;

use super::{Direct, DirectSnapshot};
use crate::Lookup;
use crate::format::key::Key;
use crate::format::key_type::KeyType;
use crate::format::{KeyBounds, OwnedKey, RangeRow, Row};
use crate::store::lookup::{LentRow, LentRows};
use crate::store::typed::{ValueOf, VisitValues};
use crate::store::{LookupError, MappedRows, Side, Store, TypedLookupError, impl_lookup_by_copies, owned, owned_range};
use crate::typed::{OwnedRow, Schema, TypedRow};

impl_lookup_by_copies!(Direct, DirectSnapshot);
impl_lookup_by_copies!(DirectSnapshot, DirectSnapshot);
