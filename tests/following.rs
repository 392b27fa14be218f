//! Tests of `kv_store --from`: servers that follow a published table.

use testkit as helpers;

mod following {
    mod cache;
    mod changes;
    mod clocks;
    mod faults;
    mod forged_documents;
    mod hostile_stores;
    mod names;
    mod outages;
    mod pins;
    mod rollouts;
    mod slots;
    mod slow_links;
    mod unusable_generations;
}
