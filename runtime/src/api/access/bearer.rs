//! The static bearer token of a server.
//!
//! Only its digest is kept, and what a caller sends is digested before it is compared in constant time: the time of the
//! comparison depends on neither the content nor the length of the token.

use http::{HeaderMap, header};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The digest of the token. No `Debug`: it is as good as the token to whoever can guess.
pub(super) struct Bearer([u8; 32]);

impl Bearer {
    pub(super) fn new(token: &SecretString) -> Self {
        Self(digest(token.expose_secret().as_bytes()))
    }

    /// Whether the header holds exactly one credential, and it is this one.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut credentials = headers.get_all(header::AUTHORIZATION).iter();
        match (credentials.next(), credentials.next()) {
            (Some(credential), None) => {
                sent_token(credential.as_bytes()).is_some_and(|token| digest(token).ct_eq(&self.0).into())
            }
            _ => false,
        }
    }
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The token of `Bearer TOKEN`: the scheme in any case, one or more spaces, at least one byte.
fn sent_token(credential: &[u8]) -> Option<&[u8]> {
    let space = credential.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = credential.split_at(space);
    let token = rest.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn is_let_in(values: &[&[u8]]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_bytes(value).expect("a value"));
        }
        Bearer::new(&SecretString::from("s3cret")).is_in(&headers)
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_the_token_in_its_own() {
        for good in ["Bearer s3cret", "bearer s3cret", "BEARER s3cret", "bEaReR   s3cret"] {
            assert!(is_let_in(&[good.as_bytes()]), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer  ",
            "s3cret",
            "Bearers3cret",
            "Basic s3cret",
            "Bearer S3CRET",
            "Bearer s3cre",
            "Bearer s3cret0",
            "Bearer s3cret,",
            "Bearer s3cret, Bearer s3cret",
            "Bearer s3cret s3cret",
            "Bearer Bearer s3cret",
            "Bearer \"s3cret\"",
            "Bearer\ts3cret",
        ] {
            assert!(!is_let_in(&[bad.as_bytes()]), "{bad}");
        }
        assert!(!is_let_in(&[b"Bearer \xff\xfe"]));
    }

    #[test]
    fn exactly_one_credential_is_looked_at() {
        assert!(!is_let_in(&[]));
        assert!(!is_let_in(&[b"Bearer s3cret", b"Bearer s3cret"]));
        assert!(!is_let_in(&[b"Bearer s3cret", b"Basic x"]));
    }

    #[test]
    fn a_token_of_any_length_is_compared() {
        let long = [b"Bearer ".as_slice(), &vec![b'x'; 1024 * 1024]].concat();
        assert!(!is_let_in(&[&long]));
    }
}
