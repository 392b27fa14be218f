//! Properties of a bake whose input is Parquet: an intact file gives its rows. Any other bytes give an error, or a file
//! in which each row is found.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use zero_kv::Lookup;
use zero_kv::Store;
use zero_kv::bake::{self, BadRows, Format, Input, Options};

use super::source::Source;
use super::tamper;

/// Intact files, each with its number of rows.
pub struct Inputs(Vec<(usize, Vec<u8>)>);

impl Inputs {
    pub fn write() -> Inputs {
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let mut inputs = Vec::new();
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd, Compression::LZ4_RAW] {
            for has_dictionary in [false, true] {
                for rows in [0, 1, 300] {
                    inputs.push((rows, written(rows, compression, has_dictionary)));
                }
            }
        }
        Inputs(inputs)
    }
}

/// Returns a file with the keys 0, 1, 2, … and optional values of bytes, in row groups of 100.
fn written(rows: usize, compression: Compression, has_dictionary: bool) -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message rows { required int64 key; required binary value; }").unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(has_dictionary)
        .set_data_page_row_count_limit(40)
        .set_write_batch_size(20)
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let keys: Vec<i64> = (0..rows as i64).collect();
    for group in keys.chunks(100) {
        let mut group_writer = writer.next_row_group().unwrap();
        let mut column = group_writer.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(group, None, None).unwrap();
        column.close().unwrap();
        let values: Vec<ByteArray> = group.iter().map(|key| format!("value {}", key % 7).as_str().into()).collect();
        let mut column = group_writer.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group_writer.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// Bakes one of the files with the changes that the bytes describe.
pub fn check(inputs: &Inputs, folder: &Path, data: &[u8]) {
    let mut source = Source::new(data);
    let (rows, intact) = &inputs.0[source.below(inputs.0.len())];
    let mut options = Options::default();
    options.format = [Format::Parquet, Format::Auto][source.below(2)];
    if source.one_in(2) {
        options.bad_rows = BadRows::Skip { file: None, max: 1000 };
    }
    let mut bytes = intact.clone();
    if source.one_in(3) {
        // Most of the file's structure is described at its end.
        let from = bytes.len().saturating_sub(700);
        let mut end = bytes.split_off(from);
        tamper::change(&mut source, &mut end);
        bytes.extend_from_slice(&end);
    } else {
        tamper::change(&mut source, &mut bytes);
    }
    let output = folder.join("new.db");
    let report = bake::bake(vec![Input::reader("rows.parquet", &bytes[..])], &output, &options);
    assert_eq!(fs::read_dir(folder).unwrap().count(), usize::from(report.is_ok()), "nothing is left behind");
    match report {
        Ok(report) => {
            let store = Store::open(&output).unwrap();
            assert_eq!(store.len() as u64, report.rows);
            for (key, value) in store.iter().map(Result::unwrap) {
                assert_eq!(store.get(key), Ok(Some(value)));
            }
            if bytes == *intact {
                let found: Vec<_> =
                    store.iter().map(Result::unwrap).map(|(key, value)| (key.as_u64(), value.to_vec())).collect();
                let row = |key| (Some(key), format!("value {}", key % 7).into_bytes());
                assert_eq!(found, (0..*rows as u64).map(row).collect::<Vec<_>>());
            }
            fs::remove_file(&output).unwrap();
        }
        Err(error) => {
            assert!(bytes != *intact, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}
