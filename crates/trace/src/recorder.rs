//! Writes a trace.

use std::io::Write;

use kai_core::{delta::Delta, plan::Plan, policy::Policy, time::Time};

use crate::{
    Error,
    checksum::checksum,
    record::{LARGEST_RECORD, MAGIC, VERSION, encode_plan, kind},
};

/// Writes a trace. It must see every delta from the empty cluster on, and [`Recorder::finish`] must be called: without the end mark a trace
/// counts as cut off.
#[derive(Debug)]
pub struct Recorder<W> {
    stream: W,
    policy: Option<Policy>,
    records: u64,
}

impl<W: Write> Recorder<W> {
    /// Begins a trace.
    pub fn new(mut stream: W) -> Result<Self, Error> {
        stream.write_all(&MAGIC).and_then(|()| stream.write_all(&VERSION.to_le_bytes())).map_err(Error::Stream)?;
        Ok(Self { stream, policy: None, records: 0 })
    }

    /// Notes a change of the cluster.
    pub fn delta(&mut self, delta: &Delta) -> Result<(), Error> {
        let body = postcard::to_allocvec(delta).map_err(Error::Encode)?;
        self.write(kind::DELTA, &body)
    }

    /// Notes a plan and what it was made from besides the cluster.
    pub fn cycle(&mut self, now: Time, policy: &Policy, plan: &Plan) -> Result<(), Error> {
        if self.policy.as_ref() != Some(policy) {
            let body = postcard::to_allocvec(policy).map_err(Error::Encode)?;
            self.write(kind::POLICY, &body)?;
            self.policy = Some(policy.clone());
        }
        let mut body = now.0.to_le_bytes().to_vec();
        body.extend(encode_plan(plan)?);
        self.write(kind::CYCLE, &body)
    }

    /// Ends the trace and gives the stream back.
    pub fn finish(mut self) -> Result<W, Error> {
        self.write(kind::END, &self.records.to_le_bytes())?;
        self.stream.flush().map_err(Error::Stream)?;
        Ok(self.stream)
    }

    fn write(&mut self, kind: u8, body: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(body.len()).ok().filter(|length| *length <= LARGEST_RECORD);
        let Some(length) = length else {
            return Err(Error::TooLong { record: self.records + 1, length: body.len() as u64 });
        };
        let length = length.to_le_bytes();
        let sum = checksum(&[&[kind], &length, body]).to_le_bytes();
        // One call per record: a recorder is often given an unbuffered file, and a record cut in two is a damaged one.
        let mut bytes = Vec::with_capacity(crate::record::PREFIX + body.len());
        bytes.push(kind);
        bytes.extend(length);
        bytes.extend(sum);
        bytes.extend(body);
        self.stream.write_all(&bytes).map_err(Error::Stream)?;
        self.records += 1;
        Ok(())
    }
}
