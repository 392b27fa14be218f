//! Tests of `baker` and of the rules that reject a suspicious table.

use testkit as helpers;

mod baking {
    mod dialects;
    mod environment;
    mod failures;
    mod json;
    mod keys;
    mod options;
    mod places;
    mod ranges;
    mod replace;
    mod report;
    mod rows;
    mod shards;
    mod signals;
    mod tables;
    mod typed;
    mod usage;
    mod warnings;
}
