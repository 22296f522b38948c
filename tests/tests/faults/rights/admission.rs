//! Admission as on a real cluster, over TLS: it keeps its certificates in a Secret and tells the API server of itself.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Secret,
};
use kai_api::names::{namespaces, webhooks};
use kai_cli::control_plane::{ControlPlane, Part, Settings, install, rbac::Holder};
use kai_clock::Clock;
use kai_lab::cluster::{Lab, LabOptions};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{LOOK, Piece, RECOVERY, pieces};
use crate::{
    processes::{Processes, Who},
    world::{fleet, in_virtual_time},
};

const WHO: Who = Who::Part(Part::Admission);
/// How often admission looks at its certificates here.
const ROUND: u64 = 10;

struct Stage {
    lab: Lab,
    plane: ControlPlane,
    processes: Processes,
}

impl Stage {
    async fn set(missing: Option<&Piece>) -> Result<Self> {
        let fleet = fleet("cpu")?;
        let seed = fleet.seed;
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse()?;
        let lab = Lab::start(LabOptions::new(fleet, Clock::starting_at(epoch)));
        let processes = Processes::new(lab.router(), seed);
        lab.ready().await;
        install::install(&lab.client()).await?;
        processes.deny(missing.map(|piece| (WHO, piece.right.clone())));
        let mut settings = Settings::new(namespaces::KAI);
        settings.admission.webhook_listen = (Ipv4Addr::LOCALHOST, 0).into();
        settings.admission.webhook_check_seconds = ROUND;
        let clients = processes.clone();
        let plane = ControlPlane::start(&[Part::Admission], move |_| clients.begin(WHO).0, lab.clock(), settings);
        Ok(Self { lab, plane, processes })
    }

    /// Somebody empties the Secret, and admission looks at it again.
    async fn play(&self) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(2 * ROUND)).await;
        let secrets: Api<Secret> = Api::namespaced(self.lab.client(), namespaces::KAI);
        if secrets.get_opt(webhooks::ADMISSION_SECRET).await?.is_some() {
            let empty = Patch::Merge(json!({"data": {"tls.crt": "bm90aGluZw=="}}));
            secrets.patch(webhooks::ADMISSION_SECRET, &PatchParams::default(), &empty).await?;
        }
        tokio::time::sleep(Duration::from_secs(3 * ROUND)).await;
        Ok(())
    }

    /// What is not as it should be: certificates, and that the API server was told.
    async fn open(&self) -> Result<Vec<String>> {
        let mut open = self.plane.unmet();
        let secrets: Api<Secret> = Api::namespaced(self.lab.client(), namespaces::KAI);
        let secret = secrets.get_opt(webhooks::ADMISSION_SECRET).await?;
        let certificate = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove("tls.crt"));
        if !certificate.is_some_and(|text| text.0.starts_with(b"-----BEGIN")) {
            open.push("there is no certificate".to_owned());
        }
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.lab.client());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.lab.client());
        if mutating.list(&ListParams::default()).await?.items.is_empty() {
            open.push("nobody completes pods".to_owned());
        }
        if validating.list(&ListParams::default()).await?.items.is_empty() {
            open.push("nobody judges pods".to_owned());
        }
        Ok(open)
    }

    async fn end(self) {
        self.plane.shutdown().await;
        self.lab.shutdown().await;
    }
}

async fn misses(piece: &Piece) -> Result<()> {
    let stage = Stage::set(Some(piece)).await?;
    stage.play().await?;
    let unmet = stage.plane.unmet();
    ensure!(piece.is_named(&unmet), "it says nothing: {unmet:?}");
    ensure!(stage.plane.is_running(Part::Admission), "the process has ended");
    stage.processes.deny(None);
    let mut waited = Duration::ZERO;
    while !stage.open().await?.is_empty() && waited < RECOVERY {
        tokio::time::sleep(LOOK).await;
        waited += LOOK;
    }
    let open = stage.open().await?;
    ensure!(open.is_empty(), "with the right granted: {open:?}");
    stage.end().await;
    Ok(())
}

#[test]
fn admission_misses_every_right() {
    let pieces = pieces(Holder::Part(Part::Admission));
    let failures: Vec<String> = pieces
        .iter()
        .filter_map(|piece| in_virtual_time(misses(piece)).err().map(|error| format!("{piece}: {error:#}")))
        .collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), pieces.len(), failures.join("\n"));
}

#[test]
fn admission_asks_for_nothing_but_its_rights() {
    let outcome = in_virtual_time(async {
        let stage = Stage::set(None).await?;
        stage.play().await?;
        let open = stage.open().await?;
        ensure!(open.is_empty(), "{open:?}");
        let pieces = pieces(Holder::Part(Part::Admission));
        let asked = stage.processes.asked(WHO);
        let other = asked.keys().find(|call| !pieces.iter().any(|piece| piece.right.allows(call)));
        ensure!(other.is_none(), "without a right: {other:?}");
        let unused = pieces.iter().find(|piece| !asked.keys().any(|call| piece.right.allows(call)));
        let unused = unused.map(ToString::to_string);
        stage.end().await;
        unused.map_or(Ok(()), |unused| Err(anyhow::anyhow!("never used: {unused}"))).context("rights")
    });
    outcome.unwrap_or_else(|error| panic!("{error:#}"));
}
