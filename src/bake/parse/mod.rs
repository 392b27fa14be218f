//! Input formats.
//!
//! In: inputs. Out: rows, whose keys and values are bytes. Each format cuts its input into pieces and parses the
//! pieces: see [`piece`]. To add a format, add a variant to [`Format`], a module in this folder, a line to [`open`],
//! and a line to `baker`'s list of formats (`FORMATS` in `bin/baker/args.rs`).

mod cut;
mod delimited;
mod json_lines;
mod memory;
mod pack;
#[cfg(feature = "parquet")]
mod parquet;
pub(super) mod piece;
mod quoting;
#[cfg(test)]
mod tests;
mod text;

use super::context::Context;
use super::error::BakeError;
use super::input::{Input, OpenInput, Opened};
use super::input_format::Format;
use delimited::DelimitedFormat;
use json_lines::JsonLinesFormat;
use memory::MemoryReader;
use piece::PieceReader;
use text::TextReader;

/// Opens an input and returns the reader of its format.
pub(super) fn open<'i>(input: Input<'i>, context: &'i Context<'i>) -> Result<Box<dyn PieceReader + 'i>, BakeError> {
    let (options, budget) = (context.options, context.budget);
    let name = input.name().to_owned();
    let opened = match input.open()? {
        Opened::Bytes(opened) => *opened,
        Opened::Rows(fill) => return MemoryReader::open(name, fill, context).map(|reader| Box::new(reader) as _),
    };
    let delimited = |opened, delimiter: u8| -> Box<dyn PieceReader + 'i> {
        let delimiter = options.delimiter.unwrap_or(delimiter);
        let format = DelimitedFormat { delimiter, options, typed: context.typed.as_ref() };
        Box::new(TextReader::new(opened, format, budget))
    };
    Ok(match options.format.detect(&name, opened.head()) {
        Format::Auto | Format::Delimited => delimited(opened, b','),
        Format::Tsv => delimited(opened, b'\t'),
        Format::JsonLines => {
            Box::new(TextReader::new(opened, JsonLinesFormat { options, typed: context.typed.as_ref() }, budget))
        }
        Format::Parquet => parquet_reader(opened, context)?,
    })
}

#[cfg(feature = "parquet")]
fn parquet_reader<'i>(opened: OpenInput<'i>, context: &Context<'_>) -> Result<Box<dyn PieceReader + 'i>, BakeError> {
    Ok(Box::new(parquet::ParquetReader::open(opened, context)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet_reader<'i>(opened: OpenInput<'i>, _: &Context<'_>) -> Result<Box<dyn PieceReader + 'i>, BakeError> {
    use super::columns::ColumnsFault;
    let message = "is Parquet, but this program was built without the feature parquet: build it with the feature \
                   parquet or full, or convert the input to CSV";
    Err(ColumnsFault::new(message, &[]).in_input(opened.name()))
}
