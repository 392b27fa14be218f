//! Tests of the file format: its bytes, the lookups in a file, and the rejection of damaged and forged files.

use testkit as helpers;

mod format {
    mod changed_files;
    mod damaged_files;
    mod damaged_index;
    mod datasets;
    mod forged_files;
    mod golden_bytes;
    mod lookups;
    mod typed_tables;
}
