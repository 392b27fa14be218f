//! Tests of `baker` and of the rules that reject a suspicious table.

use testkit as helpers;

mod baking {
    mod environment;
    mod failures;
    mod keys;
    mod options;
    mod places;
    mod replace;
    mod report;
    mod rows;
    mod shards;
    mod signals;
    mod tables;
    mod typed;
    mod usage;
}
