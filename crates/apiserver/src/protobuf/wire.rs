//! The wire format: tags, varints, lengths. Reading stops at the first malformed byte and never goes beyond the end.

use super::Failure;

/// A value as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// Iterates over the fields of a message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn read(&mut self) -> Result<(u64, Wire<'a>), Failure> {
        let tag = varint(&mut self.rest)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(&mut self.rest)?),
            1 => Wire::Fixed64(u64::from_le_bytes(*self.take_array()?)),
            2 => {
                let length = usize::try_from(varint(&mut self.rest)?).map_err(|_| Failure::Malformed("length"))?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(*self.take_array()?)),
            _ => return Err(Failure::Malformed("unknown wire type")),
        };
        match tag >> 3 {
            0 => Err(Failure::Malformed("field number zero")),
            number => Ok((number, wire)),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Failure> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Failure::Malformed("unexpected end"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<&'a [u8; N], Failure> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Failure::Malformed("unexpected end"))?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

/// The numbers of a packed list.
pub(super) fn varints(mut bytes: &[u8]) -> impl Iterator<Item = Result<u64, Failure>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let number = varint(&mut bytes);
        if number.is_err() {
            bytes = &[];
        }
        Some(number)
    })
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Failure> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Failure::Malformed("unexpected end"))?;
        *bytes = rest;
        if shift < 64 {
            value |= u64::from(byte & 0x7f) << shift;
        }
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Failure::Malformed("a number of more than ten bytes"))
}
