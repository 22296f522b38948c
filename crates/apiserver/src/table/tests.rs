//! What kubectl prints.

use serde_json::{Value, json};

use super::*;
use crate::resource::Scope;

fn resource(api_version: &str, kind: &str, origin: Origin) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Resource {
        gvk: Gvk::new(group, version, kind),
        plural: format!("{}s", kind.to_lowercase()),
        singular: kind.to_lowercase(),
        list_kind: format!("{kind}List"),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        verbs: Vec::new(),
        subresources: Vec::new(),
        schema: None,
        origin,
    }
}

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

/// Headers (wide ones with a star) and cells of one object, created a day ago unless it says otherwise.
fn show(mut object: Value) -> String {
    if object["metadata"]["creationTimestamp"].is_null() {
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let api_version = object["apiVersion"].as_str().unwrap();
    let resource = resource(api_version, object["kind"].as_str().unwrap(), Origin::BuiltIn);
    let table = render(&resource, &[&object], json!({}), IncludeObject::None, now());
    let columns = table["columnDefinitions"].as_array().unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(columns.len(), cells.len());
    let pairs = columns.iter().zip(cells).map(|(column, cell)| {
        let star = if column["priority"] == 0 { "" } else { "*" };
        format!("{}{star}={cell}", column["name"].as_str().unwrap())
    });
    pairs.collect::<Vec<_>>().join(" ")
}

fn pod(spec: &Value, status: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status})
}

/// READY, STATUS and RESTARTS of a pod.
fn pod_summary(object: Value) -> String {
    let shown = show(object);
    let from = shown.find("Ready=").unwrap();
    let to = shown.find(" Age=").unwrap();
    shown[from..to].to_owned()
}

#[test]
fn a_running_pod_shows_where_it_runs() {
    let object = pod(
        &json!({"nodeName": "n1", "containers": [{"name": "a"}], "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]}),
        &json!({
            "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "g", "status": "True"}],
            "containerStatuses": [{"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T23:55:00Z"}}}],
        }),
    );
    assert_eq!(
        show(object),
        r#"Name="p" Ready="1/1" Status="Running" Restarts="2 (5m ago)" Age="24h" IP*="10.0.0.1" Node*="n1" Nominated Node*="<none>" Readiness Gates*="1/2""#
    );
}

#[test]
fn the_status_of_a_pod_is_what_keeps_it_from_running() {
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
    let one = json!({"containers": [{"name": "a"}]});
    let sidecar = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    for (spec, status, expected) in [
        (&one, json!({"phase": "Pending"}), r#"Ready="0/1" Status="Pending" Restarts="0""#),
        (&one, json!({"phase": "Failed", "reason": "Evicted"}), r#"Ready="0/1" Status="Evicted" Restarts="0""#),
        (
            &one,
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            r#"Ready="0/1" Status="SchedulingGated" Restarts="0""#,
        ),
        (
            &one,
            json!({"phase": "Running", "containerStatuses": [
                {"name": "a", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]}),
            r#"Ready="0/1" Status="CrashLoopBackOff" Restarts="3""#,
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 3}}}]}),
            r#"Ready="0/1" Status="ExitCode:3" Restarts="0""#,
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 3, "signal": 9}}}]}),
            r#"Ready="0/1" Status="Signal:9" Restarts="0""#,
        ),
        (
            &two,
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"name": "b", "ready": true, "state": {"running": {}}},
            ]}),
            r#"Ready="1/2" Status="NotReady" Restarts="0""#,
        ),
        (
            &two,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"name": "j", "restartCount": 1, "state": {"running": {}}},
            ]}),
            r#"Ready="0/2" Status="Init:1/2" Restarts="1""#,
        ),
        (
            &two,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]}),
            r#"Ready="0/2" Status="Init:CrashLoopBackOff" Restarts="4""#,
        ),
        (
            &two,
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            r#"Ready="0/2" Status="Init:Error" Restarts="0""#,
        ),
        (
            &sidecar,
            json!({"phase": "Running",
                "initContainerStatuses": [{"name": "s", "ready": true, "started": true, "restartCount": 1, "state": {"running": {}}}],
                "containerStatuses": [{"name": "a", "ready": true, "restartCount": 1, "state": {"running": {}}}],
            }),
            r#"Ready="2/2" Status="Running" Restarts="2""#,
        ),
    ] {
        assert_eq!(pod_summary(pod(spec, &status)), expected, "{status}");
    }
}

#[test]
fn a_pod_being_deleted_is_terminating_until_it_has_ended() {
    let status_of = |status: Value| {
        let mut object = pod(&json!({"containers": []}), &status);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        pod_summary(object)
    };
    assert!(status_of(json!({"phase": "Running"})).contains("Terminating"));
    assert!(status_of(json!({"phase": "Succeeded"})).contains("Succeeded"));
    assert!(status_of(json!({"phase": "Running", "reason": "NodeLost"})).contains("Unknown"));
}

#[test]
fn rows_of_ended_pods_say_so() {
    let object = pod(&json!({}), &json!({"phase": "Succeeded"}));
    let table = render(&resource("v1", "Pod", Origin::BuiltIn), &[&object], json!({}), IncludeObject::None, now());
    assert_eq!(table["rows"][0]["conditions"][0]["reason"], "Succeeded");
    assert_eq!(table["rows"][0]["object"], Value::Null);
}

#[test]
fn nodes_show_roles_and_versions() {
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "spare",
        }},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.1.2.3"}],
            "nodeInfo": {"kubeletVersion": "v1.34.4", "osImage": "Ubuntu 24.04", "kernelVersion": "6.8.0-tegra"},
        },
    });
    assert_eq!(
        show(object),
        r#"Name="n" Status="NotReady,SchedulingDisabled" Roles="gpu,spare,worker" Age="24h" Version="v1.34.4" Internal-IP*="10.1.2.3" External-IP*="<none>" OS-Image*="Ubuntu 24.04" Kernel-Version*="6.8.0-tegra" Container-Runtime*="<unknown>""#
    );
}

#[test]
fn every_kind_with_a_printer_shows_its_columns() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}], "nodeSelector": {"k": "v"}}});
    for (object, expected) in [
        (
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}, "status": {"phase": "Active"}}),
            r#"Name="x" Status="Active" Age="24h""#,
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"},
                "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            r#"Name="x" Ready="1/3" Up-to-date=2 Available=1 Age="24h" Containers*="a,b" Images*="x:1,y" Selector*="a=b""#,
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "x"}, "spec": {"replicas": 3, "template": template}, "status": {"replicas": 2}}),
            r#"Name="x" Desired=3 Current=2 Ready=0 Age="24h" Containers*="a,b" Images*="x:1,y" Selector*="<none>""#,
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x"}, "spec": {"replicas": 3, "template": template}}),
            r#"Name="x" Ready="0/3" Age="24h" Containers*="a,b" Images*="x:1,y""#,
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}, "status": {"desiredNumberScheduled": 4}}),
            r#"Name="x" Desired=4 Current=0 Ready=0 Up-to-date=0 Available=0 Node Selector="k=v" Age="24h" Containers*="a,b" Images*="x:1,y" Selector*="a=b""#,
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
                "spec": {"completions": 2, "template": template, "selector": {"matchLabels": {"a": "b"}}},
                "status": {"succeeded": 2, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:03:10Z",
                    "conditions": [{"type": "Complete", "status": "True"}]}}),
            r#"Name="x" Status="Complete" Completions="2/2" Duration="3m10s" Age="24h" Containers*="a,b" Images*="x:1,y" Selector*="a=b""#,
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"parallelism": 3}}),
            r#"Name="x" Status="Running" Completions="0/1 of 3" Duration="" Age="24h" Containers*="" Images*="" Selector*="<none>""#,
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "x"}, "spec": {"schedule": "* * * * *", "suspend": false},
                "status": {"active": [{}], "lastScheduleTime": "2026-01-01T23:59:00Z"}}),
            r#"Name="x" Schedule="* * * * *" Timezone="<none>" Suspend="False" Active=1 Last Schedule="60s" Age="24h" Containers*="" Images*="" Selector*="<none>""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"],
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}], "selector": {"a": "b", "c": "d"}}}),
            r#"Name="x" Type="NodePort" Cluster-IP="10.0.0.1" External-IP="<none>" Port(s)="80:30080/TCP,53/UDP" Age="24h" Selector*="a=b,c=d""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"type": "LoadBalancer"}}),
            r#"Name="x" Type="LoadBalancer" Cluster-IP="<none>" External-IP="<pending>" Port(s)="<none>" Age="24h" Selector*="<none>""#,
        ),
        (
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "x"}, "addressType": "IPv4",
                "ports": [{"port": 80}, {"name": "any"}, {}], "endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3", "4"]}]}),
            r#"Name="x" AddressType="IPv4" Ports="80,any,*" Endpoints="1,2,3 + 1 more..." Age="24h""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}, "binaryData": {"b": ""}}),
            r#"Name="x" Data=2 Age="24h""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "type": "Opaque", "data": {"a": ""}}),
            r#"Name="x" Type="Opaque" Data=1 Age="24h""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "x"}, "spec": {"capacity": {"storage": "5Gi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
                "storageClassName": "fast"}, "status": {"phase": "Bound"}}),
            r#"Name="x" Capacity="5Gi" Access Modes="RWO,RWX" Reclaim Policy="Retain" Status="Bound" Claim="n/c" StorageClass="fast" VolumeAttributesClass="<unset>" Reason="" Age="24h" VolumeMode*="<unset>""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x"}, "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}}),
            r#"Name="x" Status="Pending" Volume="" Capacity="" Access Modes="" StorageClass="fast" VolumeAttributesClass="<unset>" Age="24h" VolumeMode*="<unset>""#,
        ),
        (
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
                "metadata": {"name": "x", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
            r#"Name="x (default)" Provisioner="p" ReclaimPolicy="Delete" VolumeBindingMode="Immediate" AllowVolumeExpansion=false Age="24h""#,
        ),
        (
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"}, "value": 100, "preemptionPolicy": "Never"}),
            r#"Name="x" Value=100 Global-Default=false Age="24h" PreemptionPolicy="Never""#,
        ),
        (
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x"}, "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
            r#"Name="x" Min Available="50%" Max Unavailable="N/A" Allowed Disruptions=1 Age="24h""#,
        ),
        (
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5, "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                    {"type": "Pods", "pods": {"target": {"averageValue": "10"}}}, {"type": "Pods"}]},
                "status": {"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 35}}}]}}),
            r#"Name="x" Reference="Deployment/d" Targets="cpu: 35%/80%, <unknown>/10 + 1 more..." MinPods="<unset>" MaxPods=5 Replicas=2 Age="24h""#,
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "x"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}, {"kind": "User", "name": "v"}]}),
            r#"Name="x" Role="ClusterRole/r" Age="24h" Users*="u, v" Groups*="" ServiceAccounts*="n/s""#,
        ),
        (
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "x"}, "status": {"allocation": {}, "reservedFor": [{}]}}),
            r#"Name="x" State="allocated,reserved" Age="24h""#,
        ),
        (
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "x"}, "status": {
                "hard": {"requests.nvidia.com/gpu": "4", "limits.cpu": "2", "pods": "10"}, "used": {"requests.nvidia.com/gpu": "1"}}}),
            r#"Name="x" Request="pods: 0/10, requests.nvidia.com/gpu: 1/4" Limit="limits.cpu: 0/2" Age="24h""#,
        ),
        (
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "x"}, "webhooks": [{}, {}]}),
            r#"Name="x" Webhooks=2 Age="24h""#,
        ),
        (
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}}),
            r#"Name="x" Holder="me" Age="24h""#,
        ),
    ] {
        assert_eq!(show(object.clone()), expected, "{object}");
    }
}

#[test]
fn kinds_without_a_printer_show_when_they_were_created() {
    for (api_version, kind) in [
        ("v1", "LimitRange"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
        assert_eq!(show(object), r#"Name="x" Created At="2026-01-01T00:00:00Z""#);
    }
}

#[test]
fn both_forms_of_an_event_look_the_same() {
    let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled",
        "message": " done\n", "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"}, "count": 3,
        "firstTimestamp": "2026-01-01T23:58:00Z", "lastTimestamp": "2026-01-01T23:59:30Z", "source": {"component": "kubelet", "host": "n"}});
    let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled",
        "note": " done\n", "regarding": {"kind": "Pod", "name": "p", "fieldPath": "spec"}, "deprecatedCount": 3,
        "deprecatedFirstTimestamp": "2026-01-01T23:58:00Z", "deprecatedLastTimestamp": "2026-01-01T23:59:30Z",
        "deprecatedSource": {"component": "kubelet", "host": "n"}});
    let expected = r#"Last Seen="30s" Type="Normal" Reason="Pulled" Object="pod/p" Subobject*="spec" Source*="kubelet, n" Message="done" First Seen*="2m" Count*=3 Name*="e""#;
    assert_eq!(show(core), expected);
    assert_eq!(show(new), expected);
    let series = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": "2026-01-01T23:50:00.000000Z",
        "series": {"count": 7, "lastObservedTime": "2026-01-01T23:59:59.000000Z"}, "reportingComponent": "kai"});
    assert!(show(series).starts_with(r#"Last Seen="1s""#));
}

fn custom_resource(columns: &[(&str, &str, &str, i64)]) -> Resource {
    let columns = columns.iter().map(|(name, kind, path, priority)| PrinterColumn {
        name: (*name).to_owned(),
        kind: (*kind).to_owned(),
        format: String::new(),
        description: String::new(),
        priority: *priority,
        json_path: (*path).to_owned(),
    });
    let origin = Origin::Custom {
        definition: "queues.kai.dev".to_owned(),
        scale: None,
        columns: columns.collect(),
        selectable_fields: Vec::new(),
        deprecation: None,
    };
    resource("kai.dev/v1", "Queue", origin)
}

#[test]
fn custom_columns_are_typed_and_null_when_there_is_nothing() {
    let resource = custom_resource(&[
        ("Parent", "string", ".spec.parent", 0),
        ("Weight", "integer", ".spec.weight", 0),
        ("Share", "number", ".spec.share", 0),
        ("Open", "boolean", ".spec.open", 0),
        ("Since", "date", ".spec.since", 0),
        ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 1),
        ("Labels", "string", ".metadata.labels", 0),
        ("Missing", "integer", ".spec.missing", 0),
        ("Wrong", "integer", ".spec.parent", 0),
        ("Bad date", "date", ".spec.parent", 0),
    ]);
    let object = json!({
        "metadata": {"name": "q", "labels": {"a": "b"}},
        "spec": {"parent": "root", "weight": 3.9, "share": 2, "open": true, "since": "2026-01-01T23:00:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    });
    let table = render(&resource, &[&object], json!({"resourceVersion": "7"}), IncludeObject::Metadata, now());
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["q", "root", 3, 2, true, "60m", "False", "{\"a\":\"b\"}", null, null, "<invalid>"])
    );
    assert_eq!(table["metadata"]["resourceVersion"], "7");
    assert_eq!(table["columnDefinitions"][6]["priority"], 1);
    assert_eq!(
        table["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.parent"
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"]["metadata"]["labels"]["a"], "b");
    assert_eq!(table["rows"][0]["object"].get("spec"), None);
}

#[test]
fn custom_kinds_without_columns_show_their_age() {
    let object = json!({"metadata": {"name": "q", "creationTimestamp": "2026-01-01T23:59:00Z"}});
    let table = render(&custom_resource(&[]), &[&object], json!({}), IncludeObject::Object, now());
    assert_eq!(table["rows"][0]["cells"], json!(["q", "60s"]));
    assert_eq!(table["columnDefinitions"][1]["type"], "date");
    assert_eq!(table["rows"][0]["object"], object);
}

#[test]
fn a_path_that_cannot_be_read_ends_the_table() {
    let resource = custom_resource(&[("A", "string", ".a", 0), ("B", "string", ".b[", 0), ("C", "string", ".c", 0)]);
    let object = json!({"metadata": {"name": "q"}, "a": "1", "c": "3"});
    let table = render(&resource, &[&object], json!({}), IncludeObject::None, now());
    assert_eq!(table["rows"][0]["cells"], json!(["q", "1"]));
    assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 2);
}

#[test]
fn columns_are_described_by_the_schema() {
    let field = |description: &str, fields: Vec<(&str, Schema)>| Schema {
        description: Some(description.to_owned()),
        properties: fields.into_iter().map(|(name, schema)| (name.to_owned(), std::sync::Arc::new(schema))).collect(),
        ..Schema::default()
    };
    let spec = field("", vec![("nodeName", field("where the pod runs", Vec::new()))]);
    let mut pods = resource("v1", "Pod", Origin::BuiltIn);
    pods.schema = Some(std::sync::Arc::new(field("", vec![("spec", spec)])));
    let table = render(&pods, &[], json!({}), IncludeObject::None, now());
    assert_eq!(table["columnDefinitions"][6]["name"], "Node");
    assert_eq!(table["columnDefinitions"][6]["description"], "where the pod runs");
    assert_eq!(table["columnDefinitions"][5]["description"], "");
    assert_eq!(table["rows"], json!([]));
}
