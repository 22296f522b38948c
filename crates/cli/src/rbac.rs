//! `kai rbac`: the service accounts and roles of the components, ready for `kubectl apply -f -`.

use kai_api::names::namespaces;

use crate::{
    control_plane::rbac::{Holder, grants, manifest},
    output,
};

/// Options of `kai rbac`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// A component, such as `binder`; all when not given.
    #[arg(value_name = "COMPONENT", value_parser = holder)]
    component: Option<Holder>,
    /// The namespace of the components.
    #[arg(long, default_value = namespaces::KAI)]
    namespace: String,
    /// How to print them.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// With what each rule is for.
    #[default]
    Yaml,
    /// A list of objects.
    Json,
}

fn holder(text: &str) -> Result<Holder, String> {
    Holder::ALL.into_iter().find(|holder| holder.component() == text).ok_or_else(|| {
        let known: Vec<&str> = Holder::ALL.iter().map(|holder| holder.component()).collect();
        format!("components are {}", known.join(", "))
    })
}

/// Prints them.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let chosen: Vec<Holder> = options.component.map_or_else(|| Holder::ALL.to_vec(), |holder| vec![holder]);
    let text = match options.output {
        Form::Yaml => chosen.iter().map(|holder| manifest(*holder, &options.namespace)).collect(),
        Form::Json => {
            let mut items = Vec::new();
            for holder in chosen {
                items.extend(grants(holder, &options.namespace, &holder.rights(&options.namespace)).objects()?);
            }
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items });
            serde_json::to_string_pretty(&list)?
        }
    };
    Ok(output::print(&text)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HEADER: &str =
        "# Generated from the components' rights by `UPDATE=1 cargo test -p kai-cli rbac`; do not edit.\n";

    #[test]
    fn the_files_in_deploy_are_what_the_components_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
        let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
        for holder in Holder::ALL {
            let name = format!("{}.yaml", holder.component());
            let expected = format!("{HEADER}{}", manifest(holder, namespaces::KAI));
            if update {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(&name), expected).unwrap();
                continue;
            }
            let found = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert_eq!(found, expected, "deploy/rbac/{name} is old; `UPDATE=1 cargo test -p kai-cli rbac` writes it");
        }
    }

    #[test]
    fn an_unknown_component_is_refused_with_the_known_ones() {
        assert!(holder("mailman").unwrap_err().contains("pod-grouper, scheduler, binder"));
    }
}
