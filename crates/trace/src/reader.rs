//! Reads a trace, trusting none of it: nothing is taken as read that the checksum does not cover, and no memory is reserved because a length
//! says so.

use std::io::{self, Read};

use kai_core::time::Time;

use crate::{
    Error, Record,
    checksum::checksum,
    record::{LARGEST_RECORD, MAGIC, PREFIX, VERSION, decode, kind},
};

/// Reads a trace, record by record.
#[derive(Debug)]
pub struct Reader<R> {
    stream: R,
    records: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a trace.
    pub fn new(mut stream: R) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        let mut version = [0; 2];
        if fill(&mut stream, &mut magic)? < magic.len() || magic != MAGIC {
            return Err(Error::Foreign);
        }
        if fill(&mut stream, &mut version)? < version.len() {
            return Err(Error::Truncated { complete: 0 });
        }
        match u16::from_le_bytes(version) {
            VERSION => Ok(Self { stream, records: 0, ended: false }),
            other => Err(Error::WrongVersion(other)),
        }
    }

    /// Records read so far, which is also the number of the last one.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record; `None` after the end mark.
    pub fn read(&mut self) -> Result<Option<Record>, Error> {
        if self.ended {
            return Ok(None);
        }
        let (kind, body) = self.read_raw()?;
        let record = self.records + 1;
        let read = match kind {
            kind::DELTA => Record::Delta(decode(&body, record)?),
            kind::POLICY => Record::Policy(Box::new(decode(&body, record)?)),
            kind::CYCLE => {
                let Some((now, plan)) = body.split_first_chunk() else {
                    return Err(Error::Undecodable { record, cause: None });
                };
                Record::Cycle { now: Time(i64::from_le_bytes(*now)), plan: plan.to_vec() }
            }
            kind::END => return self.end(&body).map(|()| None),
            kind => return Err(Error::UnknownKind { record, kind }),
        };
        self.records = record;
        Ok(Some(read))
    }

    fn read_raw(&mut self) -> Result<(u8, Vec<u8>), Error> {
        let complete = self.records;
        let mut prefix = [0; PREFIX];
        if fill(&mut self.stream, &mut prefix)? < PREFIX {
            return Err(Error::Truncated { complete });
        }
        let [kind, a, b, c, d, sum @ ..] = prefix;
        let length = u32::from_le_bytes([a, b, c, d]);
        if length > LARGEST_RECORD {
            return Err(Error::TooLong { record: complete + 1, length: length.into() });
        }
        // Grows as bytes arrive: a damaged length costs no memory.
        let mut body = Vec::new();
        let limit = u64::from(length);
        let read = self.stream.by_ref().take(limit).read_to_end(&mut body).map_err(Error::Stream)?;
        if (read as u64) < limit {
            return Err(Error::Truncated { complete });
        }
        if checksum(&[&[kind], &length.to_le_bytes(), &body]) != u32::from_le_bytes(sum) {
            return Err(Error::Damaged { record: complete + 1 });
        }
        Ok((kind, body))
    }

    fn end(&mut self, body: &[u8]) -> Result<(), Error> {
        let Ok(counted) = body.try_into().map(u64::from_le_bytes) else {
            return Err(Error::Undecodable { record: self.records + 1, cause: None });
        };
        if counted != self.records {
            return Err(Error::Miscounted { counted, found: self.records });
        }
        if fill(&mut self.stream, &mut [0])? > 0 {
            return Err(Error::TrailingBytes);
        }
        self.ended = true;
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        // After an error nothing that follows can be trusted.
        self.ended |= matches!(read, Some(Err(_)));
        read
    }
}

/// Reads until the buffer is full or the stream ends, and says how much that was.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Stream(error)),
        }
    }
    Ok(filled)
}
