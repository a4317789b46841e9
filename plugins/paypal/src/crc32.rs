//! The checksum of zip and PNG (CRC-32/ISO-HDLC), which PayPal signs in the body's place.

const TABLE: [u32; 256] = table();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses a place that is not there")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut rest = byte;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { (rest >> 1) ^ 0xedb8_8320 } else { rest >> 1 };
            bit += 1;
        }
        table[byte as usize] = rest;
        byte += 1;
    }
    table
}

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |rest: u32, byte: &u8| {
        let [low, ..] = rest.to_le_bytes();
        (rest >> 8) ^ TABLE.get(usize::from(low ^ byte)).copied().unwrap_or_default()
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_published_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
