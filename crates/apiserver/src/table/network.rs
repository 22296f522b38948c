//! Services, their endpoints, ingresses and network policies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::row::{Row, at, first_words, list, scalar, text as field};
use super::{AGE, NAME, Printer, text, wide};

static SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text("Type", ".spec.type"),
        text("Cluster-IP", ".spec.clusterIP"),
        text("External-IP", ".spec.externalIPs"),
        text("Port(s)", ".spec.ports"),
        AGE,
        wide("Selector", ".spec.selector"),
    ],
    cells: service,
};
static ENDPOINTS: Printer = Printer {
    columns: &[NAME, text("Endpoints", ".subsets"), AGE],
    cells: |row| vec![row.name(), json!(endpoints(row)), row.age()],
};
static ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text("AddressType", ".addressType"),
        text("Ports", ".ports"),
        text("Endpoints", ".endpoints"),
        AGE,
    ],
    cells: endpoint_slice,
};
static INGRESS: Printer = Printer {
    columns: &[
        NAME,
        text("Class", "Name of the IngressClass that configures the ingress."),
        text("Hosts", "Hosts that the rules are for."),
        text("Address", "Where the load balancer takes requests."),
        text("Ports", "Ports that are open."),
        AGE,
    ],
    cells: ingress,
};
static INGRESS_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Controller", "Controller that serves this class."),
        text("Parameters", "Object with more parameters of the class."),
        AGE,
    ],
    cells: ingress_class,
};
static NETWORK_POLICY: Printer = Printer {
    columns: &[NAME, text("Pod-Selector", ".spec.podSelector"), AGE],
    cells: |row| vec![row.name(), row.selector("spec.podSelector"), row.age()],
};
static SERVICE_CIDR: Printer = Printer {
    columns: &[NAME, text("CIDRs", ".spec.cidrs"), AGE],
    cells: |row| vec![row.name(), json!(words(row.list("spec.cidrs")).join(",")), row.age()],
};

pub(super) fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    Some(match (group, kind) {
        ("", "Service") => &SERVICE,
        ("", "Endpoints") => &ENDPOINTS,
        ("discovery.k8s.io", "EndpointSlice") => &ENDPOINT_SLICE,
        ("networking.k8s.io", "Ingress") => &INGRESS,
        ("networking.k8s.io", "IngressClass") => &INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => &NETWORK_POLICY,
        ("networking.k8s.io", "ServiceCIDR") => &SERVICE_CIDR,
        _ => return None,
    })
}

fn words(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn service(row: &Row<'_>) -> Vec<Value> {
    let address = row.list("spec.clusterIPs").first().and_then(Value::as_str).unwrap_or("<none>");
    let ports = row.list("spec.ports").iter().map(|port| {
        let (number, protocol) = (scalar(at(port, "port"), "0"), field(port, "protocol"));
        match at(port, "nodePort").as_i64() {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    vec![
        row.name(),
        row.cell("spec.type"),
        json!(address),
        json!(external_address(row)),
        json!(if ports.is_empty() { "<none>" } else { &ports }),
        row.age(),
        row.labels("spec.selector"),
    ]
}

fn external_address(row: &Row<'_>) -> String {
    let external = words(row.list("spec.externalIPs"));
    match row.text("spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let all: Vec<String> = load_balancer(row).into_iter().chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => row.text("spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses a load balancer has, sorted.
fn load_balancer(row: &Row<'_>) -> BTreeSet<String> {
    let points = row.list("status.loadBalancer.ingress").iter();
    let address = |point| match field(point, "ip") {
        "" => field(point, "hostname").to_owned(),
        address => address.to_owned(),
    };
    points.map(address).filter(|address| !address.is_empty()).collect()
}

fn endpoints(row: &Row<'_>) -> String {
    let mut all = Vec::new();
    for subset in row.list("subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| field(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let number = scalar(at(port, "port"), "0");
            all.extend(
                addresses().map(
                    |ip| {
                        if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
                    },
                ),
            );
        }
    }
    let none = if row.list("subsets").is_empty() { "<none>" } else { "" };
    first_words(&all, 3, ",", none)
}

fn endpoint_slice(row: &Row<'_>) -> Vec<Value> {
    let ports = row.list("ports").iter().map(|port| match (at(port, "port"), at(port, "name")) {
        (Value::Number(number), _) => number.to_string(),
        (_, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    });
    let ports: Vec<String> = ports.collect();
    let endpoints: Vec<String> =
        row.list("endpoints").iter().flat_map(|endpoint| words(list(endpoint, "addresses"))).collect();
    vec![
        row.name(),
        row.cell("addressType"),
        json!(first_words(&ports, 3, ",", "<unset>")),
        json!(first_words(&endpoints, 3, ",", "<unset>")),
        row.age(),
    ]
}

fn ingress(row: &Row<'_>) -> Vec<Value> {
    let rules = row.list("spec.rules");
    let hosts: Vec<String> =
        rules.iter().map(|rule| field(rule, "host").to_owned()).filter(|host| !host.is_empty()).collect();
    let open = if row.list("spec.tls").is_empty() { "80" } else { "80, 443" };
    vec![
        row.name(),
        row.cell_or("spec.ingressClassName", "<none>"),
        json!(first_words(&hosts, 3, ",", "*")),
        json!(load_balancer(row).into_iter().collect::<Vec<_>>().join(",")),
        json!(open),
        row.age(),
    ]
}

fn ingress_class(row: &Row<'_>) -> Vec<Value> {
    let parameters = row.at("spec.parameters");
    let shown = if parameters.is_null() {
        "<none>".to_owned()
    } else {
        let group = at(parameters, "apiGroup").as_str().map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{}", field(parameters, "kind"), field(parameters, "name"))
    };
    vec![row.name(), row.cell("spec.controller"), json!(shown), row.age()]
}
