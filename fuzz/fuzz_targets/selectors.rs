//! Label and field selectors.

#![no_main]

use kai_apiserver::select::{FieldSelector, LabelSelector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let printed = selector.to_string();
        let again = LabelSelector::parse(&printed).unwrap_or_else(|e| panic!("{printed:?}: {e}"));
        assert_eq!(again.to_string(), printed);
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        let printed = selector.to_string();
        let again = FieldSelector::parse(&printed).unwrap_or_else(|e| panic!("{printed:?}: {e}"));
        assert_eq!(again.to_string(), printed);
    }
});
