//! Pins: which generation nodes serve.
//!
//! In: requests of an operator. Out: a series of documents. The newest document applies. Without one, nodes serve the
//! newest generation.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::author::{TOOL, author};
use super::document::{Series, decode, encode, pause_after_race};
use super::error::PublishError;
use super::limits::{self, NODES_MAX, NUMBER_MAX, TEXT_LEN_MAX_BYTES, check_count, check_len, check_number};
use super::location::Location;

/// How often the creation of a pin is repeated when another operator was first.
const CREATIONS_MAX: u32 = 100;

/// A pin: an instruction of an operator to nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pin {
    /// The generation to serve. `None` for the newest one.
    pub generation: Option<u64>,
    /// The nodes that the pin applies to. Empty for all nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "limits::list::<_, _, NODES_MAX>")]
    pub nodes: Vec<String>,
    /// The generation that the other nodes serve, if `nodes` names some. `None` for the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<u64>,
    /// Whether nodes prepare the generation, but wait for the decision of a rollout before they serve it.
    #[serde(default)]
    pub hold: bool,
    /// When the pin was created, as RFC 3339 text.
    pub created: String,
    /// Who created the pin, as `USER@HOST`. Empty if an earlier version created it, as for the next field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub created_by: String,
    /// The program that created the pin, with its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
}

impl Pin {
    /// Creates a pin of all nodes to a generation, or to the newest one.
    pub fn new(generation: Option<u64>) -> Pin {
        let created = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let (created_by, tool) = (author(), TOOL.to_owned());
        Pin { generation, nodes: Vec::new(), others: None, hold: false, created, created_by, tool }
    }

    /// Returns whether the pin applies to a node.
    pub fn applies_to(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|name| name == node)
    }

    /// Returns the generation that a node serves. `None` for the newest one. Without a node, returns the generation of
    /// the nodes that the pin does not name.
    pub fn generation_for(&self, node: Option<&str>) -> Option<u64> {
        let is_named = match node {
            Some(node) => self.applies_to(node),
            None => self.nodes.is_empty(),
        };
        if is_named { self.generation } else { self.others }
    }

    /// Checks that all numbers and lengths are within the [limits]. The error states the problem.
    pub(super) fn check(&self) -> Result<(), String> {
        for number in [self.generation, self.others].into_iter().flatten() {
            check_number("a generation", number, NUMBER_MAX)?;
        }
        check_count("nodes", self.nodes.len(), NODES_MAX)?;
        check_len("the time", &self.created, TEXT_LEN_MAX_BYTES)?;
        check_len("the name of the creator", &self.created_by, TEXT_LEN_MAX_BYTES)?;
        check_len("the name of the tool", &self.tool, TEXT_LEN_MAX_BYTES)
    }

    /// Reads a pin by its number. Returns `None` if there is none.
    pub(super) async fn read(location: &Location, number: u64) -> Result<Option<Pin>, PublishError> {
        let decode = |json: &[u8]| {
            let pin: Pin = decode(json)?;
            pin.check().map_err(|problem| format!("{problem}: create another pin"))?;
            match super::document::decode::<NumberOnly>(json)?.number {
                Some(found) if found != number => Err(format!("is pin {found}, expected {number}: create another pin")),
                _ => Ok(pin),
            }
        };
        location.read_document(Series::Pins, number, decode).await
    }

    /// Creates a pin with the next number after `last`, the highest number that was used. Returns the number.
    pub(super) async fn create(&self, location: &Location, last: u64) -> Result<u64, PublishError> {
        let mut number = last;
        for attempt in 0..CREATIONS_MAX {
            number = location.highest(Series::Pins, number).await? + 1;
            if location.create_document(Series::Pins, number, &encode(&Numbered { number, pin: self })).await? {
                return Ok(number);
            }
            // Another operator was first.
            pause_after_race(attempt).await;
        }
        let problem = format!("pin {number} was created by others {CREATIONS_MAX} times: create the pin again");
        Err(location.document_fault(&Series::Pins.object(number), problem))
    }
}

/// The document of a pin.
#[derive(Serialize)]
struct Numbered<'a> {
    number: u64,
    #[serde(flatten)]
    pin: &'a Pin,
}

/// The number of a pin in its document. Earlier versions did not write it.
#[derive(Deserialize)]
struct NumberOnly {
    number: Option<u64>,
}

/// The decision about a pin with [`Pin::hold`]: whether nodes serve its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Nodes serve the generation.
    Activate,
    /// Nodes continue to serve the preceding generation.
    Abort,
}

impl Decision {
    /// Reads the decision about a pin. Returns `None` if there is none.
    pub(super) async fn read(location: &Location, pin: u64) -> Result<Option<Decision>, PublishError> {
        location.read_document(Series::Decisions, pin, decode).await
    }

    /// Creates the decision about a pin. The first decision is final: returns it, even if it is another one.
    pub(super) async fn create(self, location: &Location, pin: u64) -> Result<Decision, PublishError> {
        // Whether it was created now or before does not matter.
        location.create_document(Series::Decisions, pin, &encode(&self)).await?;
        let missing = || location.document_fault(&Series::Decisions.object(pin), "was deleted: create another pin");
        Decision::read(location, pin).await?.ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::Manifest;

    #[test]
    fn pins_and_manifests_of_earlier_versions_name_no_creator() {
        let location = Location::parse("file:///tables/users").unwrap();
        let mut manifest = serde_json::to_value(Manifest::new(&location, "job", Vec::new())).unwrap();
        let mut pin = serde_json::to_value(Pin::new(Some(7))).unwrap();
        for document in [&mut manifest, &mut pin] {
            assert!(document["created_by"].as_str().unwrap().contains('@'), "{document}");
            document.as_object_mut().unwrap().remove("created_by");
        }
        pin.as_object_mut().unwrap().remove("tool");
        assert_eq!(serde_json::from_value::<Manifest>(manifest).unwrap().created_by, "");
        let pin: Pin = serde_json::from_value(pin).unwrap();
        assert_eq!((pin.generation, &*pin.created_by, &*pin.tool), (Some(7), "", ""));
        // As earlier versions write it, and without fields that say nothing.
        let written = serde_json::to_value(&pin).unwrap();
        assert!(written.get("created_by").is_none() && written.get("tool").is_none(), "{written}");
    }
}
