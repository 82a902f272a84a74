//! Puts row groups of several Parquet files into one, without decoding them.
//!
//! What a row group holds is copied byte for byte; only the footer is new. So gathering the files of a
//! thousand ranks costs what copying them costs, and a row group never holds rows of two of them.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
pub use parquet::errors::ParquetError;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, KeyValue, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;

/// A value that a column has in every row of a part.
#[derive(Clone, Debug)]
pub enum Constant {
    /// Of a column of 64-bit integers.
    Int(i64),
    /// Of a column of text.
    Text(String),
}

/// Rows of one file: whole row groups of it.
#[derive(Clone, Debug)]
pub struct Part {
    /// The file.
    pub path: PathBuf,
    /// How many rows of the file stand before.
    pub first_row: i64,
    /// How many rows are taken.
    pub rows: i64,
    /// Columns that have one value in all of these rows: it becomes the statistics of their row groups.
    pub constants: Vec<(String, Constant)>,
}

/// Why parts were not gathered.
#[derive(Debug)]
pub enum Error {
    /// The part of this number has other columns than the first one.
    ColumnsDiffer(usize),
    /// A file cannot be read or written, or is not what its part says.
    File(PathBuf, ParquetError),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ColumnsDiffer(part) => write!(formatter, "part {part} has other columns than the first"),
            Self::File(path, error) => write!(formatter, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// Writes the rows of `parts`, in their order, into the new file `out`; gives its size.
///
/// The metadata of the file are those of the first part's.
///
/// # Errors
///
/// [`Error::ColumnsDiffer`] if the parts are not of one table, [`Error::File`] if a file cannot be read or
/// written. What of `out` was written stays.
pub fn gather(parts: &[Part], out: &Path) -> Result<u64, Error> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error: ParquetError| Error::File(path, error)
    };
    let Some(first) = parts.first() else { return Ok(0) };
    let mut source = Source::open(&first.path).map_err(at(&first.path))?;
    let columns = source.metadata.file_metadata().schema_descr_ptr();
    let meanings = source.meanings().cloned();
    let properties = WriterProperties::builder().set_key_value_metadata(source.metadata_pairs()).build();
    let file = File::create_new(out).map_err(ParquetError::from).map_err(at(out))?;
    let mut writer =
        SerializedFileWriter::new(BufWriter::new(file), columns.root_schema_ptr(), Arc::new(properties))
            .map_err(at(out))?;
    for (number, part) in parts.iter().enumerate() {
        if source.path != part.path {
            source = Source::open(&part.path).map_err(at(&part.path))?;
        }
        if source.metadata.file_metadata().schema_descr_ptr() != columns
            || source.meanings() != meanings.as_ref()
        {
            return Err(Error::ColumnsDiffer(number));
        }
        for group in source.groups(part).map_err(at(&part.path))? {
            source.copy(group, part, &mut writer).map_err(at(&part.path))?;
        }
    }
    let mut file = writer.into_inner().map_err(at(out))?;
    file.flush().map_err(ParquetError::from).map_err(at(out))?;
    let size = file.get_ref().metadata().map_err(ParquetError::from).map_err(at(out))?.len();
    Ok(size)
}

/// Metadata that say what the columns mean to readers of Arrow.
const MEANINGS: &str = "ARROW:schema";

/// An open file with its footer.
struct Source {
    path: PathBuf,
    file: File,
    metadata: ParquetMetaData,
}

impl Source {
    fn open(path: &Path) -> ParquetResult<Self> {
        let file = File::open(path)?;
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file)?;
        Ok(Self { path: path.to_owned(), file, metadata })
    }

    fn metadata_pairs(&self) -> Option<Vec<KeyValue>> {
        self.metadata.file_metadata().key_value_metadata().cloned()
    }

    fn meanings(&self) -> Option<&String> {
        let pairs = self.metadata.file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == MEANINGS)?.value.as_ref()
    }

    /// The row groups that hold the rows of a part, and no others.
    fn groups(&self, part: &Part) -> ParquetResult<Vec<usize>> {
        let end = part.first_row.saturating_add(part.rows);
        let (mut found, mut begin) = (Vec::new(), 0_i64);
        let (mut rows, sizes) = (0_i64, self.metadata.row_groups().iter().map(RowGroupMetaData::num_rows));
        for (number, size) in sizes.enumerate() {
            if begin >= part.first_row && begin < end {
                found.push(number);
                rows = rows.saturating_add(size);
            }
            begin = begin.saturating_add(size);
        }
        if rows == part.rows {
            Ok(found)
        } else {
            let text = format!("rows {} to {end} are not whole row groups", part.first_row);
            Err(ParquetError::General(text))
        }
    }

    fn copy<W: Write + Send>(
        &mut self,
        group: usize,
        part: &Part,
        writer: &mut SerializedFileWriter<W>,
    ) -> ParquetResult<()> {
        let group = self.metadata.row_group(group);
        let block = Block::read(&mut self.file, group)?;
        let mut copied = writer.next_row_group()?;
        let rows = u64::try_from(group.num_rows()).map_err(|error| ParquetError::External(error.into()))?;
        for column in group.columns() {
            let metadata = with_statistics(column, part)?;
            let close = ColumnCloseResult {
                bytes_written: u64::try_from(metadata.compressed_size()).unwrap_or(0),
                rows_written: rows,
                metadata,
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            copied.append_column(&block, close)?;
        }
        copied.close()?;
        Ok(())
    }
}

fn with_statistics(column: &ColumnChunkMetaData, part: &Part) -> ParquetResult<ColumnChunkMetaData> {
    let name = column.column_path().string();
    let Some((_, value)) = part.constants.iter().find(|(constant, _)| *constant == name) else {
        return Ok(column.clone());
    };
    let statistics = match value {
        Constant::Int(value) => Statistics::int64(Some(*value), Some(*value), None, Some(0), false),
        Constant::Text(text) => {
            let value = ByteArray::from(text.as_bytes().to_vec());
            Statistics::byte_array(Some(value.clone()), Some(value), None, Some(0), false)
        }
    };
    if statistics.physical_type() != column.column_type() {
        return Err(ParquetError::General(format!("column {name} is of another type")));
    }
    column.clone().into_builder().set_statistics(statistics).build()
}

/// The bytes of a row group, at the offsets that they have in their file.
struct Block {
    begin: u64,
    bytes: Bytes,
}

impl Block {
    fn read(file: &mut File, group: &RowGroupMetaData) -> ParquetResult<Self> {
        let (mut begin, mut end) = (u64::MAX, 0_u64);
        for column in group.columns() {
            let place = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let (Ok(place), Ok(size)) = (u64::try_from(place), u64::try_from(column.compressed_size()))
            else {
                return Err(ParquetError::General("a negative offset".to_owned()));
            };
            begin = begin.min(place);
            end = end.max(place.saturating_add(size));
        }
        let begin = begin.min(end);
        if end > file.metadata()?.len() {
            return Err(ParquetError::EOF("a row group ends behind the file".to_owned()));
        }
        let size = usize::try_from(end - begin).map_err(|error| ParquetError::External(error.into()))?;
        let mut bytes = vec![0; size];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut bytes)?;
        Ok(Self { begin, bytes: bytes.into() })
    }

    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let place = start.checked_sub(self.begin).and_then(|place| usize::try_from(place).ok());
        match place {
            Some(place) if place <= self.bytes.len() => Ok(self.bytes.slice(place..)),
            _ => Err(ParquetError::EOF(format!("{start} is not in the row group"))),
        }
    }
}

impl Length for Block {
    fn len(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }
}

impl ChunkReader for Block {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.from(start)?;
        if length <= bytes.len() {
            Ok(bytes.slice(..length))
        } else {
            Err(ParquetError::EOF(format!("{length} bytes from {start} are not in the row group")))
        }
    }
}
