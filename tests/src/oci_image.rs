//! Container images made without docker and without a registry: OCI archives with one layer, written byte for byte here.
//!
//! ```text
//! archive (tar)   oci-layout
//!                 index.json  --digest-->  manifest  --digest-->  config (architecture, entry point, diff id of the layer)
//!                                                    --digest-->  layer  (tar of the root file system)
//!                 blobs/sha256/<digest>    one file for each of the three
//! ```
//!
//! The same content always gives the same bytes: entries are sorted and carry no time. `ctr images import` takes the archive and
//! names the image after the annotation in `index.json`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// One image: a name, what to run, and the files of its root file system.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    entrypoint: Vec<String>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Folder,
    File { mode: u32, content: Vec<u8> },
    Link { target: String },
}

impl Image {
    /// An empty image; `name` is a full reference such as `kai.test/busybox:1`.
    pub fn new(name: &str, entrypoint: &[&str]) -> Self {
        let entrypoint = entrypoint.iter().map(ToString::to_string).collect();
        Self { name: name.into(), entrypoint, entries: BTreeMap::new() }
    }

    /// The image's reference, as pods name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a file at an absolute or relative path below the root, and the folders above it.
    pub fn add_file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> &mut Self {
        self.add(path, Entry::File { mode, content: content.into() })
    }

    /// Adds a symbolic link.
    pub fn add_link(&mut self, path: &str, target: &str) -> &mut Self {
        self.add(path, Entry::Link { target: target.into() })
    }

    /// Adds an empty folder.
    pub fn add_folder(&mut self, path: &str) -> &mut Self {
        self.add(path, Entry::Folder)
    }

    fn add(&mut self, path: &str, entry: Entry) -> &mut Self {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..end].into()).or_insert(Entry::Folder);
        }
        self.entries.insert(path.into(), entry);
        self
    }

    /// Writes the image as an OCI archive.
    pub fn write_archive(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("create `{}`", path.display()))?;
        self.write(io::BufWriter::new(file)).with_context(|| format!("write image `{}`", self.name))
    }

    fn write(&self, output: impl Write) -> Result<()> {
        let layer = self.layer()?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        })
        .to_string()
        .into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        })
        .to_string()
        .into_bytes();
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] = json!({"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string().into_bytes();

        let mut archive = Builder::new(output);
        append(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut archive, "index.json", 0o644, &index)?;
        for blob in [&manifest, &config, &layer] {
            append(&mut archive, &format!("blobs/{}", digest(blob).replace(':', "/")), 0o644, blob)?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            match entry {
                Entry::File { mode, content } => append(&mut layer, path, *mode, content)?,
                Entry::Folder => {
                    let mut header = header(EntryType::Directory, 0o755, 0);
                    layer.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Entry::Link { target } => layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?,
            }
        }
        Ok(layer.into_inner()?)
    }
}

fn append(archive: &mut Builder<impl Write>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    archive.append_data(&mut header(EntryType::Regular, mode, content.len() as u64), path, content)?;
    Ok(())
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

/// This machine's architecture in the words of the image specification.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn image() -> Image {
        let mut image = Image::new("kai.test/hello:7", &["/bin/hello"]);
        image.add_file("/usr/bin/hello", 0o755, "#!hello").add_link("/bin", "usr/bin").add_folder("tmp");
        image
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_string_lossy().into_owned(), content)
        });
        entries.collect()
    }

    fn archive() -> Vec<u8> {
        let mut output = Vec::new();
        image().write(&mut output).unwrap();
        output
    }

    #[test]
    fn every_descriptor_leads_to_a_blob_with_that_digest_and_size() {
        let files = files(&archive());
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let blob = |descriptor: &Value| {
            let digest_text = descriptor["digest"].as_str().unwrap();
            let blob = &files[&format!("blobs/{}", digest_text.replace(':', "/"))];
            assert_eq!(digest(blob), digest_text);
            assert_eq!(descriptor["size"], blob.len());
            blob.clone()
        };
        let index = parse(&files["index.json"]);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "kai.test/hello:7");
        let manifest = parse(&blob(&index["manifests"][0]));
        let config = parse(&blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        let layer = self::files(&layer);
        assert_eq!(layer.keys().collect::<Vec<_>>(), ["bin", "tmp/", "usr/", "usr/bin/", "usr/bin/hello"]);
        assert_eq!(layer["usr/bin/hello"], b"#!hello");
    }

    #[test]
    fn the_same_image_is_the_same_bytes() {
        assert_eq!(archive(), archive());
    }
}
