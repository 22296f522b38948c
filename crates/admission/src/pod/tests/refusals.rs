//! What is refused, with which words.

use super::*;

#[track_caller]
fn refused(object: &Value, words: &[&str]) {
    let error = validate(&Settings::default(), object).expect_err(&object.to_string());
    for word in ["pod `team/p`", "hint: "].iter().chain(words) {
        assert!(error.contains(word), "no `{word}` in: {error}");
    }
}

fn with_gpu(notes: &Value, list: &str, kind: &str) -> Value {
    let mut pod = pod(notes);
    pod["spec"][list] = json!([{"name": "main", "resources": {kind: {"nvidia.com/gpu": "1"}}}]);
    pod
}

#[test]
fn fractions_that_are_none_are_refused() {
    let number = "must be a positive number smaller than 1.0";
    let float = "must be a decimal or scientific float";
    for (text, words) in [
        ("1.5", number),
        ("1", number),
        ("-0", number),
        ("0", number),
        ("-0.5", number),
        ("1e300", number),
        ("abc", float),
        ("NaN", float),
        ("Inf", float),
        ("0,5", float),
        ("500m", float),
        (" 0.5", float),
        ("0.5.5", float),
        ("e", float),
        ("0.0000001", "less than a millionth"),
    ] {
        refused(&pod(&json!({"gpu-fraction": text})), &["gpu-fraction", &format!("`{text}`"), words]);
    }
    refused(&pod(&json!({"gpu-fraction": " 0.5"})), &["` 0.5`", "hint: write it without spaces"]);
}

#[test]
fn fractions_are_read_as_the_scheduler_reads_them() {
    let settings = Settings::default();
    for text in ["0.5", "0.29", "1e-1", "0.000001", ".5"] {
        assert_eq!(validate(&settings, &pod(&json!({"gpu-fraction": text}))), Ok(Vec::new()), "{text}");
    }
    let warnings = validate(&settings, &pod(&json!({"gpu-fraction": "0.3333333333"}))).unwrap();
    let expected =
        "pod `team/p`: annotation `gpu-fraction`: `0.3333333333` counts as 0.333333: shares are kept in millionths";
    assert_eq!(warnings, [expected]);
    let warnings = validate(&settings, &pod(&json!({"gpu-fraction": ""}))).unwrap();
    assert!(warnings[0].contains("is empty and has no effect"), "{warnings:?}");
}

#[test]
fn memory_is_a_plain_number_of_mib() {
    for (text, remedy) in [
        ("0", "such as `30720`"),
        ("000", "such as `30720`"),
        ("30GB", "`30720`"),
        ("30Gi", "`30720`"),
        ("4096Mi", "`4096`"),
        ("-5", "such as `30720`"),
        ("1.5", "such as `30720`"),
        ("lots", "such as `30720`"),
    ] {
        let words = ["gpu-memory", &format!("`{text}`"), "must be a positive integer greater than 0", remedy];
        refused(&pod(&json!({"gpu-memory": text})), &words);
    }
    for most in ["18446744073709551615", "18446744073709551616"] {
        let pod = pod(&json!({"gpu-memory": most}));
        refused(&pod, &["gpu-memory", most, "is more than any machine has"]);
        let error = validate(&Settings::default(), &pod).unwrap_err();
        assert_eq!(error.matches("hint: ").count(), 1, "{error}");
    }
    assert_eq!(validate(&Settings::default(), &pod(&json!({"gpu-memory": "30720"}))), Ok(Vec::new()));
}

#[test]
fn contradictions_are_refused() {
    let both = "cannot request both GPU and GPU memory";
    refused(&pod(&json!({"gpu-memory": "1024", "gpu-fraction": "0.5"})), &["gpu-memory", both]);
    for list in ["containers", "initContainers"] {
        for kind in ["limits", "requests"] {
            let words = ["cannot have both a GPU fraction", "`main`", "nvidia.com/gpu"];
            refused(&with_gpu(&json!({"gpu-fraction": "0.5"}), list, kind), &words);
            refused(&with_gpu(&json!({"gpu-memory": "1024"}), list, kind), &[both, "`main`", "nvidia.com/gpu"]);
            assert_eq!(validate(&Settings::default(), &with_gpu(&json!({}), list, kind)), Ok(Vec::new()));
        }
    }
    refused(&pod(&json!({"mps": "true"})), &["mps", "MPS can only be used with a GPU fraction"]);
    assert!(validate(&Settings::default(), &pod(&json!({"mps": "true", "gpu-fraction": "0.5"}))).is_ok());
    let alone = "cannot request several fractional devices without portion or gpu-memory";
    refused(&pod(&json!({"gpu-fraction-num-devices": "2"})), &["gpu-fraction-num-devices", alone]);
    for text in ["0", "-1", "two", "1.5", "+1", "99999999999"] {
        let notes = json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text});
        refused(&pod(&notes), &["gpu-fraction-num-devices", text, "must be a positive integer greater than 0"]);
    }
    assert!(validate(&Settings::default(), &pod(&json!({"gpu-memory": "9", "gpu-fraction-num-devices": "2"}))).is_ok());
}

#[test]
fn the_container_must_be_there_once() {
    let notes = json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"});
    refused(&pod(&notes), &["container `other` not found for fraction request", "name one of `main`"]);
    let spaced = json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": " main"});
    refused(&pod(&spaced), &["container ` main` not found for fraction request"]);
    let mut twice = pod(&notes);
    twice["spec"]["initContainers"] = json!([{"name": "other"}]);
    assert!(validate(&Settings::default(), &twice).is_ok());
    twice["spec"]["containers"][0]["name"] = json!("other");
    refused(&twice, &["container `other` is in the pod more than once"]);
}

#[test]
fn sharing_can_be_switched_off() {
    let settings = Settings { gpu_sharing: false, ..Settings::default() };
    let error = validate(&settings, &pod(&json!({"gpu-fraction": "0.5"}))).unwrap_err();
    assert!(error.contains("pod `team/p`") && error.contains("GPU sharing is disabled"), "{error}");
    assert_eq!(validate(&settings, &pod(&json!({}))), Ok(Vec::new()));
}

#[test]
fn pods_of_other_schedulers_are_left_alone() {
    let mut foreign = pod(&json!({"gpu-fraction": "abc"}));
    foreign["spec"]["schedulerName"] = json!("default-scheduler");
    assert_eq!(validate(&Settings::default(), &foreign), Ok(Vec::new()));
    assert_eq!(mutate(&Settings::default(), &foreign).unwrap(), foreign);
}

#[test]
fn what_components_write_users_do_not() {
    let mut grouped = pod(&json!({}));
    grouped["metadata"]["labels"] = json!({"runai-gpu-group/x": "x"});
    refused(&grouped, &["label `runai-gpu-group/x`", "not user `alice`"]);
    refused(&pod(&json!({"received-resource-type": "Fraction"})), &["received-resource-type", "not user `alice`"]);
    let mut reservation = pod(&json!({}));
    reservation["metadata"]["labels"] = json!({"app": "kai-resource-reservation"});
    refused(&reservation, &["label `app`", "kai-resource-reservation"]);
    // Also where the pod is of another scheduler.
    reservation["spec"]["schedulerName"] = json!("default-scheduler");
    refused(&reservation, &["label `app`"]);
    let binder = "system:serviceaccount:kai-scheduler:binder";
    assert_eq!(update(binder, &pod(&json!({})), &grouped), Ok(Vec::new()));
    let error = update("alice", &grouped, &pod(&json!({}))).unwrap_err();
    assert!(error.contains("label `runai-gpu-group/x`"), "{error}");
    assert_eq!(update("alice", &grouped, &grouped), Ok(Vec::new()));
    let error = update("alice", &pod(&json!({"runai/shared-gpu-configmap": "a"})), &pod(&json!({}))).unwrap_err();
    assert!(error.contains("runai/shared-gpu-configmap"), "{error}");
}

#[test]
fn what_a_bound_pod_holds_is_frozen() {
    let bound = |notes: Value| {
        let mut pod = pod(&notes);
        pod["spec"]["nodeName"] = json!("gpu-7");
        pod
    };
    let half = json!({"gpu-fraction": "0.5"});
    for (before, after, name) in [
        (half.clone(), json!({"gpu-fraction": "0.1"}), "gpu-fraction"),
        (half.clone(), json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), "gpu-fraction-num-devices"),
        (json!({"gpu-memory": "9"}), json!({"gpu-memory": "8"}), "gpu-memory"),
        (half.clone(), json!({}), "gpu-fraction"),
        (json!({}), half.clone(), "gpu-fraction"),
    ] {
        let error = update("kubernetes-admin", &bound(before), &bound(after)).unwrap_err();
        assert!(error.contains(&format!("annotation `{name}`: cannot")) && error.contains("hint"), "{error}");
    }
    // While it waits it may ask for more or less, but not for something else.
    assert_eq!(update("alice", &pod(&half), &pod(&json!({"gpu-fraction": "0.1"}))), Ok(Vec::new()));
    assert!(update("alice", &pod(&half), &pod(&json!({"gpu-fraction": "7"}))).is_err());
    assert!(update("alice", &pod(&json!({})), &pod(&half)).is_err());
    let moved = json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"});
    assert!(update("alice", &pod(&half), &pod(&moved)).unwrap_err().contains("gpu-fraction-container-name"));
}

#[test]
fn a_pod_that_was_let_in_before_the_rules_stays_changeable() {
    let odd = pod(&json!({"gpu-fraction": "abc"}));
    let mut finished = odd.clone();
    finished["metadata"]["finalizers"] = json!([]);
    finished["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(update("alice", &odd, &finished), Ok(Vec::new()));
}

#[test]
fn visible_devices_are_refused_where_that_is_switched_on() {
    let settings = Settings { block_visible_devices: true, ..Settings::default() };
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (variable, words) in [
            (json!({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}), "only `void` or `none` are allowed"),
            (json!({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}), "valueFrom"),
        ] {
            let mut pod = pod(&json!({}));
            pod["spec"][list] = json!([{"name": "x", "env": [variable]}]);
            let error = validate(&settings, &pod).unwrap_err();
            assert!(error.contains("container `x`") && error.contains(words), "{error}");
            assert!(validate(&Settings::default(), &pod).is_ok());
        }
    }
    let mut quiet = pod(&json!({}));
    quiet["spec"]["containers"][0]["env"] = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]);
    assert!(validate(&settings, &quiet).is_ok());
}
