//! CRC-32 as Ethernet, gzip and PNG compute it: every burst of up to 32 wrong bits is noticed.

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0xEDB8_8320;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    let mut start: u32 = 0;
    while byte < 256 {
        let mut value = start;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
        start += 1;
    }
    table
}

/// The checksum of some pieces, one after the other.
pub fn checksum(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.iter().flat_map(|piece| piece.iter());
    !bytes.fold(!0, |sum: u32, byte| TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)] ^ (sum >> 8))
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn the_published_check_value_comes_out() {
        assert_eq!(checksum(&[b"123456789"]), 0xCBF4_3926);
        assert_eq!(checksum(&[b"1234", b"", b"56789"]), 0xCBF4_3926);
    }
}
