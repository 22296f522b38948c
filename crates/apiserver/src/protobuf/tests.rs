//! Protobuf and JSON of the same object say the same.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAGIC, decode};

/// Written by Go's own serializer: the bytes it sends, and the JSON it writes for the same object (without nulls).
const FIXTURES: &str = include_str!("../../data/protobuf-fixtures.json");

fn fixtures() -> Vec<(String, Vec<u8>, Value)> {
    let all: Value = serde_json::from_str(FIXTURES).unwrap();
    let bytes_of =
        |hex: &str| (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    all.as_object()
        .unwrap()
        .iter()
        .map(|(name, f)| (name.clone(), bytes_of(f["bytes"].as_str().unwrap()), f["json"].clone()))
        .collect()
}

#[test]
fn what_go_sends_is_what_go_would_have_sent_as_json() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 20);
    for (name, bytes, expected) in fixtures {
        assert_eq!(decode(&bytes).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_body_that_is_no_protobuf_is_refused() {
    let error = decode(b"{}").unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (400, "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    );
    assert_eq!(decode(b"k8s\0").unwrap_err().code, 400);
}

#[test]
fn an_unknown_kind_is_refused_by_name() {
    assert_eq!(
        decode(&body("v1", "Thing", &[])).unwrap_err().message,
        "no kind \"Thing\" is registered for version \"v1\""
    );
}

#[test]
fn json_inside_the_envelope_is_taken_as_it_is() {
    let body = [MAGIC.to_vec(), wrap(2, b"{\"a\":1}"), wrap(4, b"application/json")].concat();
    assert_eq!(decode(&body).unwrap(), json!({"a": 1}));
}

/// A length-delimited field.
fn wrap(field: u64, inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut number in [field << 3 | 2, inner.len() as u64] {
        while number >= 0x80 {
            out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        out.push(u8::try_from(number).unwrap());
    }
    out.extend(inner);
    out
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [wrap(1, api_version.as_bytes()), wrap(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), wrap(1, &meta), wrap(2, raw)].concat()
}

#[test]
fn deep_nesting_ends_in_an_error() {
    let message = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let table = crate::builtin::data::message_source(message).unwrap();
    let not = table.as_array().unwrap().iter().find(|row| row[1] == "not").unwrap()[0].as_u64().unwrap();
    let schema = (0..5000).fold(Vec::new(), |inner, _| wrap(not, &inner));
    // spec, versions, schema, openAPIV3Schema
    let raw = [1, 4, 7, 2].iter().fold(schema, |inner, field| wrap(*field, &inner));
    let error = decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw)).unwrap_err();
    assert!(error.message.contains("nested too deeply"), "{}", error.message);
}

#[test]
fn a_small_body_cannot_become_a_huge_object() {
    // A pod with a million empty containers: two bytes each.
    let spec = wrap(2, &[0x12, 0x00].repeat(1_000_000));
    assert!(decode(&body("v1", "Pod", &spec)).unwrap_err().message.contains("too many values"));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = decode(&[MAGIC.as_slice(), &bytes].concat());
    }

    #[test]
    fn a_damaged_body_never_panics(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let fixtures = fixtures();
        let mut bytes = which.get(&fixtures).1.clone();
        let position = at.index(bytes.len());
        if cut { bytes.truncate(position) } else { bytes[position] = byte }
        let _ = decode(&bytes);
    }
}
