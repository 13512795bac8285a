//! Bytes as hexadecimal digits, and back.

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// Reads exactly `N` bytes, in lower or upper case.
pub fn from_hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }

    #[test]
    fn all_bytes_are_read_back_in_either_case() {
        let all: [u8; 256] = std::array::from_fn(|byte| u8::try_from(byte).unwrap());
        assert_eq!(from_hex(&hex(&all)), Some(all));
        assert_eq!(from_hex(&hex(&all).to_uppercase()), Some(all));
    }

    #[test]
    fn other_lengths_and_characters_are_refused() {
        for bad in ["", "0", "000", "0000 ", "00000", "000g", "+0-0", "ää", "0x00"] {
            assert_eq!(from_hex::<2>(bad), None, "{bad:?}");
        }
        assert_eq!(from_hex::<0>(""), Some([]));
    }
}
