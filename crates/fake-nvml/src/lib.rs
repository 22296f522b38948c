//! A `libnvidia-ml.so.1` for tests and for the embedded cluster: the shared library as bytes, and the words it understands.
//!
//! ```text
//!  kai (or a test) -- write_to(folder) --> folder/libnvidia-ml.so.1
//!        '-- starts a program with LD_LIBRARY_PATH=folder and KAI_FAKE_NVML=<devices> --> the program finds "NVML"
//! ```
//!
//! The library itself is `library.rs`, a crate of its own that the build script compiles. It must not know: anything else.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// The variable that tells the library which devices there are.
pub const VARIABLE: &str = "KAI_FAKE_NVML";

/// The name programs look for.
pub const FILE_NAME: &str = "libnvidia-ml.so.1";

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnvidia-ml.so.1"));

/// Writes the library to a folder, which is made if it is not there, and says where. Safe while other processes use an older
/// copy: the file is replaced, never changed.
pub fn write_to(folder: &Path) -> io::Result<PathBuf> {
    if LIBRARY.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "there is a fake NVML for Linux only"));
    }
    fs::create_dir_all(folder)?;
    let path = folder.join(FILE_NAME);
    if fs::read(&path).is_ok_and(|there| there == LIBRARY) {
        return Ok(path);
    }
    let fresh = folder.join(format!("{FILE_NAME}.{}", std::process::id()));
    fs::write(&fresh, LIBRARY)?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}

/// A device to pretend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeDevice {
    /// What `nvmlDeviceGetUUID` answers.
    pub uuid: String,
    /// What `nvmlDeviceGetName` answers.
    pub name: String,
    /// Memory in MiB; a device without it does not support the question, as on Thor.
    pub memory_mib: Option<u64>,
    /// UUIDs of the MIG instances that are visible; MIG mode is on if there are any.
    pub mig: Vec<String>,
}

/// The value of [`VARIABLE`] for these devices.
pub fn describe(devices: &[FakeDevice]) -> String {
    let mut text = String::new();
    for device in devices {
        let memory = device.memory_mib.map(|memory| memory.to_string()).unwrap_or_default();
        // Writing to a string cannot fail. Marks of the format would break it, and no device has them in its name.
        let plain = |text: &str| text.replace([',', ';', '+'], " ");
        let mig: Vec<String> = device.mig.iter().map(|uuid| plain(uuid)).collect();
        let _ = write!(text, "{},{},{memory},{};", plain(&device.uuid), plain(&device.name), mig.join("+"));
    }
    text
}

/// The value of [`VARIABLE`] for a library that cannot be initialised: a number of NVML or one of `driver-not-loaded`,
/// `no-permission`, `version-mismatch`, `unknown`.
pub fn describe_error(error: &str) -> String {
    format!("error={error};")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_written_whole_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        let path = write_to(&deep).unwrap();
        assert_eq!(path, deep.join("libnvidia-ml.so.1"));
        fs::write(&path, "damaged").unwrap();
        write_to(&deep).unwrap();
        assert_eq!(&fs::read(&path).unwrap()[..4], b"\x7fELF");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
    }

    #[test]
    fn devices_are_described_in_the_words_of_the_library() {
        let devices = [
            FakeDevice {
                uuid: "GPU-1".into(),
                name: "NVIDIA H100, 80GB".into(),
                memory_mib: Some(81_559),
                mig: vec![],
            },
            FakeDevice {
                uuid: "GPU-2".into(),
                name: "A".into(),
                memory_mib: None,
                mig: vec!["MIG-1".into(), "MIG-2".into()],
            },
        ];
        assert_eq!(describe(&devices), "GPU-1,NVIDIA H100  80GB,81559,;GPU-2,A,,MIG-1+MIG-2;");
        assert_eq!(describe(&[]), "");
    }
}
