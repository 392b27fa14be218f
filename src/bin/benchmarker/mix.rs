//! The mix of ops that requests use, such as `get` or `get:0.9,exists:0.1`.

use std::fmt;
use std::str::FromStr;

use rand::{Rng, RngExt};
use zero_kv::protocol::native;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Get,
    Exists,
    Floor,
    /// The columns that `--columns` names.
    GetColumns,
    /// All columns, as a Redis hash.
    Hgetall,
    /// The columns that `--columns` names, as fields of a Redis hash.
    Hmget,
}

impl Op {
    #[inline]
    pub(crate) fn native(self) -> native::Op {
        match self {
            Op::Get => native::Op::Get,
            Op::Exists => native::Op::Exists,
            Op::Floor => native::Op::Floor,
            Op::GetColumns => native::Op::GetColumns,
            Op::Hgetall | Op::Hmget => unreachable!("Args::check allows these ops only in the Redis protocol"),
        }
    }

    pub(crate) fn is_of_columns(self) -> bool {
        matches!(self, Op::GetColumns | Op::Hgetall | Op::Hmget)
    }

    /// Converts the native op of an encoded request. The benchmarker encodes only `get`, `exists`, `floor`, and
    /// `get_columns` requests.
    #[inline]
    pub(crate) fn from_native(op: Option<native::Op>) -> Op {
        match op {
            Some(native::Op::Get) => Op::Get,
            Some(native::Op::Floor) => Op::Floor,
            Some(native::Op::GetColumns) => Op::GetColumns,
            _ => Op::Exists,
        }
    }
}

const OPS: &[(&str, Op)] = &[
    ("get", Op::Get),
    ("exists", Op::Exists),
    ("floor", Op::Floor),
    ("get_columns", Op::GetColumns),
    ("hgetall", Op::Hgetall),
    ("hmget", Op::Hmget),
];
/// Maximum difference between the sum of the shares and 1. The sum may be inexact, because decimals such as 0.1 have no
/// exact binary representation.
const SUM_TOLERANCE: f64 = 1e-6;

/// The ops that requests use, each with its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpMix(Vec<(Op, f64)>);

impl OpMix {
    pub(crate) fn single(&self) -> Option<Op> {
        match self.0[..] {
            [(op, _)] => Some(op),
            _ => None,
        }
    }

    pub(crate) fn contains(&self, op: Op) -> bool {
        self.0.iter().any(|&(each, _)| each == op)
    }

    pub(crate) fn draw(&self, rng: &mut impl Rng) -> Op {
        let (last, others) = self.0.split_last().expect("FromStr rejects an empty mix");
        if others.is_empty() {
            return last.0;
        }
        let mut at = rng.random::<f64>();
        for &(op, share) in others {
            if at < share {
                return op;
            }
            at -= share;
        }
        last.0
    }
}

impl FromStr for OpMix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix: Vec<(Op, f64)> = Vec::new();
        for part in text.split(',') {
            let (name, share) = match part.split_once(':') {
                Some((name, share)) => (name, share.parse().ok().filter(|share| (0.0..=1.0).contains(share))),
                None => (part, (part == text).then_some(1.0)),
            };
            let share: f64 = share.ok_or("expected a share after each op, as in `get:0.9,exists:0.1`")?;
            let Some(&(_, op)) = OPS.iter().find(|(each, _)| *each == name) else {
                let names = OPS.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                return Err(format!("unknown op `{name}`: expected one of {names}"));
            };
            if mix.iter().any(|&(each, _)| each == op) {
                return Err(format!("`{name}` is given twice: name each op once"));
            }
            mix.push((op, share));
        }
        let sum: f64 = mix.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(format!("the shares add up to {sum}, expected 1"));
        }
        mix.retain(|&(_, share)| share > 0.0);
        if mix.len() > 1
            && let Some((op, _)) = mix.iter().find(|(op, _)| !matches!(op, Op::Get | Op::Exists))
        {
            let (name, _) = OPS.iter().find(|(_, each)| each == op).expect("every op has a name");
            return Err(format!("`{name}` cannot be mixed with other ops"));
        }
        Ok(OpMix(mix))
    }
}

impl fmt::Display for OpMix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (op, share)) in self.0.iter().enumerate() {
            let (name, _) = OPS.iter().find(|(_, each)| each == op).expect("every op has a name");
            match self.0.len() {
                1 => write!(formatter, "{name}")?,
                _ => write!(formatter, "{}{name}:{share}", if at > 0 { "," } else { "" })?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_mix_is_displayed_as_the_same_text() {
        for text in ["get", "exists", "floor", "get_columns", "hgetall", "hmget", "get:0.9,exists:0.1"] {
            assert_eq!(text.parse::<OpMix>().unwrap().to_string(), text);
        }
        assert_eq!("get:1,exists:0".parse(), "get".parse::<OpMix>());
    }

    #[test]
    fn invalid_mixes_are_rejected() {
        for text in [
            "",
            "put",
            "get,exists",
            "floor:0.5,get:0.5",
            "hgetall:0.5,get:0.5",
            "get:0.5",
            "get:0.5,get:0.5",
            "get:2,exists:-1",
            "get:NaN",
            "get:0.9,",
            ":1",
        ] {
            assert!(text.parse::<OpMix>().is_err(), "{text:?}");
        }
    }
}
