//! Resource quantities.

#![no_main]

use kai_quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(quantity) = text.parse::<Quantity>() {
        let printed = quantity.to_string();
        let again: Quantity = printed.parse().unwrap_or_else(|_| panic!("{printed:?} from {text:?}"));
        assert_eq!(again.to_string(), printed);
    }
});
