//! What an attempt can come to besides success, and what that means for the next one.

use kai_api::names::bind_errors;
use kai_kit::errors::{Class, classify, message};

/// Why an attempt did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may work on the same node later.
    Transient(String),
    /// It will not work on this node for now.
    Refused(String),
    /// What the attempt was about is no longer there.
    Gone(String),
    /// Nothing went wrong: something is not ready yet, what it is.
    Waiting(String),
}

impl Failure {
    /// What an error of the API means for the attempt; `doing` begins the sentence.
    pub(crate) fn of(doing: &str, error: &kube::Error) -> Self {
        let words = message(error);
        let text = format!("{doing}: {words}");
        // A webhook chooses the code of its refusal itself; the words around it are the server's.
        let denied = matches!(error, kube::Error::Api(_)) && words.contains("denied the request");
        match classify(error) {
            Class::Refused => Self::Refused(text),
            _ if denied => Self::Refused(text),
            _ => Self::Transient(text),
        }
    }

    /// The value of `status.errorClass`.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Transient(_) | Self::Waiting(_) => bind_errors::TRANSIENT,
            Self::Refused(_) => bind_errors::REFUSED,
            Self::Gone(_) => bind_errors::GONE,
        }
    }

    /// The sentence.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Transient(text) | Self::Refused(text) | Self::Gone(text) | Self::Waiting(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn of(code: u16, words: &str) -> Failure {
        Failure::of("bind pod", &kube::Error::Api(Box::new(Status::failure(words, "Reason").with_code(code))))
    }

    #[test]
    fn a_denial_is_a_refusal_whatever_its_code() {
        assert!(matches!(of(403, "no"), Failure::Refused(_)));
        assert!(matches!(of(500, "admission webhook \"w\" denied the request: no"), Failure::Refused(_)));
        assert!(matches!(of(500, "failed calling webhook \"w\": timeout"), Failure::Transient(_)));
        assert!(matches!(of(409, "changed"), Failure::Transient(_)));
    }
}
