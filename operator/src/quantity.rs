//! Amounts of resources in the one spelling that the API server stores.
//!
//! `1000m`, `1.0` and `1` are one amount; the API server keeps the shortest. Writing that spelling ourselves lets what is
//! wanted be compared with what is stored byte by byte, so that an odd spelling in a spec never causes a write.

/// The stored spelling; `None` for a text that is no amount, or one too large or fine for 128-bit nanounits.
pub fn canonical(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let places = i32::try_from(fraction.len()).ok()?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    if let Some(binary) = binary_power(suffix) {
        // Fractions of bytes are rounded up, as the API server does.
        let ten = 10_i128.checked_pow(places.unsigned_abs())?;
        let bytes = digits.checked_mul(1024_i128.checked_pow(binary)?)?;
        return Some(in_binary((bytes + ten - 1) / ten));
    }
    let (exponent, style) = decimal_exponent(suffix)?;
    // In nanounits: digits * 10^(exponent - places + 9), rounded up.
    let power = exponent.checked_sub(places)?.checked_add(9)?;
    let ten = 10_i128.checked_pow(power.unsigned_abs())?;
    let nano = if power >= 0 {
        digits.checked_mul(ten)?
    } else {
        (digits + ten - 1) / ten
    };
    Some(in_decimal(nano, style))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Suffix,
    Exponent,
}

fn binary_power(suffix: &str) -> Option<u32> {
    let powers = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let at = powers.iter().position(|name| *name == suffix)?;
    u32::try_from(at + 1).ok()
}

/// Names of decimal powers, from nano upwards in steps of a thousand.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

fn decimal_exponent(suffix: &str) -> Option<(i32, Style)> {
    if let Some(at) = DECIMAL.iter().position(|name| *name == suffix) {
        return Some((3 * (i32::try_from(at).ok()? - 3), Style::Suffix));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((exponent, Style::Exponent))
}

fn in_binary(mut amount: i128) -> String {
    let mut power = 0;
    while amount != 0 && amount % 1024 == 0 && power < 6 {
        amount /= 1024;
        power += 1;
    }
    let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
    format!("{amount}{suffix}")
}

fn in_decimal(mut nano: i128, style: Style) -> String {
    if nano == 0 {
        return "0".to_owned();
    }
    let mut at = 0;
    while nano % 1000 == 0 && at + 1 < DECIMAL.len() {
        nano /= 1000;
        at += 1;
    }
    if style == Style::Exponent && at != 3 {
        let exponent = 3 * (i64::try_from(at).unwrap_or_default() - 3);
        return format!("{nano}e{exponent}");
    }
    format!("{nano}{}", DECIMAL[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_amount_becomes_the_one_that_is_stored() {
        for (text, stored) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1", "1"),
            ("1.5", "1500m"),
            ("2000", "2k"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512Mi", "512Mi"),
            ("1000000Ki", "1000000Ki"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1e3", "1e3"),
            ("128M", "128M"),
            ("0.1Ki", "103"),
            (".5", "500m"),
            ("100u", "100u"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(stored), "{text}");
        }
    }

    #[test]
    fn what_is_stored_is_its_own_spelling() {
        for text in ["1", "500m", "1Gi", "1536Mi", "2k", "1e3", "103", "0"] {
            assert_eq!(canonical(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "m", "one", "1.2.3", "1 Gi", "1gi", "-1", "1e", &"9".repeat(60)] {
            assert_eq!(canonical(text), None, "{text:?}");
        }
    }
}
