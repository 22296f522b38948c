//! The whole way through a real `libnvidia-ml.so.1`: a child process finds the fake one by `LD_LIBRARY_PATH`, as a container
//! finds the driver's.

use std::process::Command;

use kai_fake_nvml::{FakeDevice, VARIABLE, describe, describe_error};
use kai_gpu::{Devices, Nvml};

/// What a process prints that finds the library and has these variables.
fn seen(variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--ignored", "--nocapture", "tell_what_is_seen"]);
    kai_fake_nvml::write_to(folder.path()).unwrap();
    child.env_remove("NVIDIA_VISIBLE_DEVICES").env_remove(VARIABLE).env("LD_LIBRARY_PATH", folder.path());
    let output = child.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_once("SEEN ").map(|(_, seen)| format!("{seen}\n"))).collect()
}

#[test]
#[ignore = "run by the other tests as a process of its own"]
fn tell_what_is_seen() {
    match Nvml::default().list() {
        Ok(devices) => {
            println!("\nSEEN {} devices", devices.len());
            for device in devices {
                println!("SEEN {} {:?} {:?} {:?}", device.uuid, device.name, device.memory, device.mig);
            }
        }
        Err(problem) => println!("\nSEEN {problem}"),
    }
}

fn devices() -> String {
    describe(&[
        FakeDevice {
            uuid: "GPU-a".to_owned(),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory_mib: Some(81_559),
            ..FakeDevice::default()
        },
        FakeDevice { uuid: "GPU-b".to_owned(), name: "NVIDIA Thor".to_owned(), ..FakeDevice::default() },
        FakeDevice {
            uuid: "GPU-c".to_owned(),
            name: "NVIDIA A100".to_owned(),
            memory_mib: Some(40_960),
            mig: vec!["MIG-1".to_owned(), "MIG-2".to_owned()],
        },
    ])
}

#[test]
fn devices_are_read_with_their_names_memory_and_instances() {
    let text = seen(&[(VARIABLE, &devices())]);
    assert_eq!(
        text,
        "3 devices\n\
         GPU-a \"NVIDIA H100 80GB HBM3\" Some(85520809984) Off\n\
         GPU-b \"NVIDIA Thor\" None Off\n\
         GPU-c \"NVIDIA A100\" Some(42949672960) On([\"MIG-1\", \"MIG-2\"])\n"
    );
}

#[test]
fn a_container_sees_only_what_it_was_given() {
    let first_lines = |visible: &str| {
        let text = seen(&[(VARIABLE, &devices()), ("NVIDIA_VISIBLE_DEVICES", visible)]);
        text.lines().map(|line| line.split(" \"").next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(first_lines("GPU-b"), "1 devices GPU-b");
    assert_eq!(first_lines("0"), "1 devices GPU-a");
    assert_eq!(first_lines("k8s.device-plugin.nvidia.com/gpu=GPU-a,GPU-c"), "2 devices GPU-a GPU-c");
    assert_eq!(first_lines("void"), "0 devices");
    assert_eq!(first_lines("all"), "3 devices GPU-a GPU-b GPU-c");
    let text = seen(&[(VARIABLE, &devices()), ("NVIDIA_VISIBLE_DEVICES", "MIG-2")]);
    assert!(text.starts_with("1 devices\nGPU-c ") && text.ends_with("On([\"MIG-2\"])\n"), "{text}");
}

#[test]
fn what_goes_wrong_is_said_with_its_remedy() {
    let text = seen(&[(VARIABLE, &describe_error("driver-not-loaded"))]);
    assert!(text.starts_with("driver not loaded: the container sees no /dev/nvidia*"), "{text}");
    let text = seen(&[(VARIABLE, &describe_error("version-mismatch"))]);
    assert!(text.contains("does not fit the loaded driver"), "{text}");
    let text = seen(&[(VARIABLE, &describe_error("28"))]);
    assert!(text.starts_with("NVML failed while it was to start"), "{text}");
    let text = seen(&[]);
    assert_eq!(text, "0 devices\n");
}

#[test]
fn a_missing_library_is_named_with_the_folder_a_jetson_has_it_in() {
    let missing = Nvml::at("/nowhere/libnvidia-ml.so.1").list().unwrap_err().to_string();
    assert!(missing.starts_with("libnvidia-ml.so.1 not found (/nowhere/libnvidia-ml.so.1: "), "{missing}");
    assert!(missing.contains("/usr/lib/aarch64-linux-gnu/nvidia"), "{missing}");
}
