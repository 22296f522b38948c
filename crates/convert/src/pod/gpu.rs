//! Parts of GPUs, as annotations ask for them: exact decimals, never floats.

use std::collections::BTreeMap;

use kai_api::names::annotations;
use kai_core::{
    amounts::{GPU, LARGEST},
    delta::Gpus,
};

use crate::amount::{millionths, wrong};

/// The GPUs of a pod with these annotations that asks for `whole` ones in its containers, or what is wrong with them.
///
/// Whoever judges pods before the scheduler sees them must read them as it does: through this.
pub fn gpus(notes: &BTreeMap<String, String>, whole: i64) -> Result<Gpus, String> {
    let fraction = written(notes, annotations::GPU_FRACTION);
    let memory = written(notes, annotations::GPU_MEMORY);
    if fraction.is_none() && memory.is_none() {
        let field = "spec.containers[].resources.requests[nvidia.com/gpu]";
        let number = u32::try_from(whole);
        return number.map(Gpus::Whole).map_err(|_| wrong(field, "is more GPUs than exist", "ask for fewer GPUs"));
    }
    if whole > 0 {
        let name = if fraction.is_some() { annotations::GPU_FRACTION } else { annotations::GPU_MEMORY };
        return Err(wrong(field(name), "excludes whole GPUs", "remove it or the container's `nvidia.com/gpu`"));
    }
    let devices = devices(notes)?;
    match (fraction, memory) {
        (Some(text), _) => portion(text, devices),
        (None, Some(text)) => part_of_memory(text, devices),
        (None, None) => Ok(Gpus::None),
    }
}

fn field(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

fn written<'a>(notes: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    notes.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn devices(notes: &BTreeMap<String, String>) -> Result<u32, String> {
    let Some(text) = written(notes, annotations::GPU_FRACTION_DEVICES) else { return Ok(1) };
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
        let what = format_args!("`{text}` is not a number of devices");
        wrong(field(annotations::GPU_FRACTION_DEVICES), what, "write a whole number such as `2`")
    })
}

fn portion(text: &str, devices: u32) -> Result<Gpus, String> {
    let refuse = |what: &str| {
        let shown: String = text.chars().take(32).collect();
        let name = field(annotations::GPU_FRACTION);
        Err(wrong(&name, format_args!("`{shown}` {what}"), "write a decimal between 0 and 1, such as `0.5`"))
    };
    let Some(parts) = millionths(text) else { return refuse("is not a number") };
    match (parts / GPU, u32::try_from(parts % GPU)) {
        _ if parts <= 0 => refuse("asks for less than a millionth of a GPU"),
        _ if parts > LARGEST => refuse("is more than any machine has"),
        (0, Ok(millionths)) => Ok(Gpus::Portion { devices, millionths }),
        (count, Ok(0)) => {
            let count = u32::try_from(count.saturating_mul(i64::from(devices)));
            count.map(Gpus::Whole).or_else(|_| refuse("is more than any machine has"))
        }
        _ => refuse("is more than one GPU and not a whole number"),
    }
}

fn part_of_memory(text: &str, devices: u32) -> Result<Gpus, String> {
    match text.parse::<u64>() {
        Ok(0) => Ok(Gpus::None),
        Ok(mib) if mib <= LARGEST.unsigned_abs() => Ok(Gpus::Memory { devices, mib }),
        _ => {
            let shown: String = text.chars().take(32).collect();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let why = if digits { "is more than any machine has" } else { "is not a number of MiB" };
            let what = format_args!("`{shown}` {why}");
            Err(wrong(field(annotations::GPU_MEMORY), what, "write a whole number of MiB such as `4096`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(notes: &[(&str, &str)]) -> Result<Gpus, String> {
        gpus(&notes.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(), 0)
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(read(&[("gpu-fraction", "0.29")]), Ok(Gpus::Portion { devices: 1, millionths: 290_000 }));
        let two = [("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")];
        assert_eq!(read(&two), Ok(Gpus::Portion { devices: 2, millionths: 500_000 }));
    }

    #[test]
    fn one_and_whole_numbers_above_are_whole_gpus() {
        assert_eq!(read(&[("gpu-fraction", "1")]), Ok(Gpus::Whole(1)));
        assert_eq!(read(&[("gpu-fraction", "2.0"), ("gpu-fraction-num-devices", "3")]), Ok(Gpus::Whole(6)));
        assert!(read(&[("gpu-fraction", "1.5")]).is_err());
    }

    #[test]
    fn memory_is_mib_of_each_device() {
        assert_eq!(read(&[("gpu-memory", "4096")]), Ok(Gpus::Memory { devices: 1, mib: 4096 }));
        assert_eq!(read(&[("gpu-memory", "0")]), Ok(Gpus::None));
        assert_eq!(read(&[("gpu-fraction", "0.5"), ("gpu-memory", "9")]), read(&[("gpu-fraction", "0.5")]));
    }

    #[test]
    fn an_empty_annotation_says_nothing() {
        assert_eq!(read(&[("gpu-fraction", "")]), Ok(Gpus::Whole(0)));
    }

    #[test]
    fn nonsense_names_the_annotation() {
        for (name, text) in [
            ("gpu-fraction", "half"),
            ("gpu-fraction", "-0.5"),
            ("gpu-fraction", "0"),
            ("gpu-fraction", "1000000000000000000"),
            ("gpu-memory", "4Gi"),
            ("gpu-memory", "-1"),
            ("gpu-memory", "18446744073709551615"),
        ] {
            let error = read(&[(name, text)]).expect_err(text);
            assert!(error.contains(name) && error.contains("hint"), "{error}");
        }
        assert!(read(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "0")]).is_err());
    }
}
