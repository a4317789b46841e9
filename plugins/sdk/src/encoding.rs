//! Hexadecimal and base64, as senders write them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Some senders leave the padding out, none depends on its being there.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes hexadecimal digits of either case; none for anything else.
pub fn hex(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    hex::decode(text).ok()
}

/// Decodes base64 of the standard alphabet, padded or not; none for anything else.
pub fn base64(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_senders_write_and_nothing_else() {
        assert_eq!(hex("00fF"), Some(vec![0, 255]));
        assert_eq!(hex("0"), None);
        assert_eq!(hex("0x"), None);
        assert_eq!(hex(" 00"), None);
        assert_eq!(base64("AP8="), Some(vec![0, 255]));
        assert_eq!(base64("AP8"), Some(vec![0, 255]));
        assert_eq!(base64("AP8=="), None);
        assert_eq!(base64("A P8="), None);
        assert_eq!(base64("_-8="), None);
    }
}
