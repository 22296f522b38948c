//! Which devices a request takes: the expressions of its class and its own, in CEL, and the taints it puts up with.
//!
//! An expression that does not compile makes the request impossible; one that fails on a device does not take that device.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Program, Value,
    objects::{Key, Map},
};
use k8s_openapi::api::resource::v1::{DeviceSelector, DeviceTaint, DeviceToleration};
use kube_cel::KubeCelExt as _;

/// Longer expressions are refused, as by Kubernetes.
const LONGEST: usize = 10 * 1024;
/// Deeper brackets are refused: the parser is recursive.
const DEEPEST: usize = 100;
/// Enough stack for any expression within these limits.
const STACK: usize = 256 * 1024 * 1024;

/// What tells devices apart: two devices with equal content are of one kind for everybody.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub(super) driver: String,
    pub(super) attributes: BTreeMap<String, Attribute>,
    pub(super) capacity: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attribute {
    Bool(bool),
    Int(i64),
    Text(String),
    Version(String),
}

/// A taint of a device that keeps claims off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taint {
    key: String,
    value: String,
    effect: String,
}

impl Taint {
    /// Reads a taint; those that keep nobody off are left out.
    pub(super) fn of(given: &DeviceTaint) -> Option<Self> {
        let keeps_off = matches!(given.effect.as_str(), "NoSchedule" | "NoExecute");
        let value = given.value.clone().unwrap_or_default();
        keeps_off.then(|| Self { key: given.key.clone(), value, effect: given.effect.clone() })
    }
}

/// Which devices a request takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Filter {
    expressions: Vec<String>,
    /// Key, value (`None`: any) and effect (empty: any) of taints it puts up with.
    tolerations: Vec<(String, Option<String>, String)>,
}

impl Filter {
    /// The filter of a request: the selectors of its class and its own.
    pub(super) fn of(class: &[String], own: &[String], tolerations: &[DeviceToleration]) -> Self {
        let tolerated = tolerations.iter().map(|one| {
            let any = one.operator.as_deref() == Some("Exists");
            let value = (!any).then(|| one.value.clone().unwrap_or_default());
            (one.key.clone().unwrap_or_default(), value, one.effect.clone().unwrap_or_default())
        });
        let mut expressions: Vec<String> = class.iter().chain(own).cloned().collect();
        expressions.sort();
        expressions.dedup();
        Self { expressions, tolerations: tolerated.collect() }
    }

    /// Why no device can ever be taken, if so.
    pub(super) fn problem(&self) -> Option<String> {
        self.expressions.iter().find_map(|text| {
            let shown: String = text.chars().take(80).collect();
            on_deep_stack(|| compile(text).err()).map_or_else(
                || Some(format!("device selector `{shown}` cannot be evaluated")),
                |error| error.map(|error| format!("device selector `{shown}` does not compile: {error}")),
            )
        })
    }

    /// Which of the devices it takes.
    pub(super) fn matches(&self, contents: &[Content]) -> Vec<bool> {
        let all = || {
            let programs: Result<Vec<Program>, String> = self.expressions.iter().map(|text| compile(text)).collect();
            let Ok(programs) = programs else { return vec![false; contents.len()] };
            contents.iter().map(|content| self.tolerates(content) && takes(&programs, content)).collect()
        };
        if self.expressions.is_empty() {
            return contents.iter().map(|content| self.tolerates(content)).collect();
        }
        on_deep_stack(all).unwrap_or_else(|| vec![false; contents.len()])
    }

    fn tolerates(&self, content: &Content) -> bool {
        content.taints.iter().all(|taint| {
            self.tolerations.iter().any(|(key, value, effect)| {
                (key.is_empty() || *key == taint.key)
                    && value.as_ref().is_none_or(|value| *value == taint.value)
                    && (effect.is_empty() || *effect == taint.effect)
            })
        })
    }
}

/// The expressions of selectors; those of another language are not known.
pub(super) fn expressions(selectors: Option<&Vec<DeviceSelector>>) -> Vec<String> {
    let selectors = selectors.into_iter().flatten();
    selectors.filter_map(|selector| selector.cel.as_ref().map(|cel| cel.expression.clone())).collect()
}

/// The functions of CEL and of Kubernetes.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
static QUANTITY: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("quantity(text)").ok());
static VERSION: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("semver(text)").ok());

fn compile(text: &str) -> Result<Program, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(format!("its brackets are nested deeper than {DEEPEST}"));
        }
    }
    let first_line = |error: cel::ParseErrors| error.to_string().lines().next().unwrap_or("not CEL").to_owned();
    catch_unwind(|| Program::compile(text)).map_err(|_| "it cannot be parsed".to_owned())?.map_err(first_line)
}

/// Runs a function with plenty of stack; `None` if it panics: expressions are users' and the library is a third party's.
fn on_deep_stack<T: Send>(function: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, function).ok()?.join().ok()
    })
}

fn takes(programs: &[Program], content: &Content) -> bool {
    let mut scope = FUNCTIONS.new_inner_scope();
    scope.add_variable_from_value("device", device(content));
    programs.iter().all(|program| {
        let answer = catch_unwind(AssertUnwindSafe(|| program.execute(&scope)));
        matches!(answer, Ok(Ok(Value::Bool(true))))
    })
}

/// The variable `device` of Kubernetes: driver, attributes and capacity, the last two by domain and name.
fn device(content: &Content) -> Value {
    let attributes = content.attributes.iter().map(|(name, attribute)| {
        let value = match attribute {
            Attribute::Bool(flag) => Value::Bool(*flag),
            Attribute::Int(number) => Value::Int(*number),
            Attribute::Text(text) => string(text),
            Attribute::Version(text) => through(&VERSION, text),
        };
        (name, value)
    });
    let capacity = content.capacity.iter().map(|(name, text)| (name, through(&QUANTITY, text)));
    map([
        ("driver".to_owned(), string(&content.driver)),
        ("attributes".to_owned(), by_domain(&content.driver, attributes)),
        ("capacity".to_owned(), by_domain(&content.driver, capacity)),
    ])
}

/// Names without a domain belong to the driver's.
fn by_domain<'a>(driver: &str, values: impl Iterator<Item = (&'a String, Value)>) -> Value {
    let mut domains: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
    for (name, value) in values {
        let (domain, short) = name.split_once('/').unwrap_or((driver, name));
        domains.entry(domain.to_owned()).or_default().push((short.to_owned(), value));
    }
    map(domains.into_iter().map(|(domain, values)| (domain, map(values))))
}

fn map(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    let entries = entries.into_iter().map(|(name, value)| (Key::String(Arc::new(name)), value));
    Value::Map(Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
}

fn string(text: &str) -> Value {
    Value::String(Arc::new(text.to_owned()))
}

/// The library's own functions make its values, so that the types behind them stay its own.
fn through(program: &LazyLock<Option<Program>>, text: &str) -> Value {
    let made = program.as_ref().and_then(|program| {
        let mut scope = FUNCTIONS.new_inner_scope();
        scope.add_variable_from_value("text", string(text));
        program.execute(&scope).ok()
    });
    made.unwrap_or_else(|| string(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> Content {
        let attribute = |name: &str, value: Attribute| (name.to_owned(), value);
        Content {
            driver: "gpu.nvidia.com".to_owned(),
            attributes: BTreeMap::from([
                attribute("productName", Attribute::Text("H100".to_owned())),
                attribute("index", Attribute::Int(3)),
                attribute("driverVersion", Attribute::Version("550.1.0".to_owned())),
                attribute("fabric.example.com/linked", Attribute::Bool(true)),
            ]),
            capacity: BTreeMap::from([("memory".to_owned(), "80Gi".to_owned())]),
            taints: Vec::new(),
        }
    }

    fn taken(expression: &str) -> bool {
        Filter::of(&[], &[expression.to_owned()], &[]).matches(&[gpu()])[0]
    }

    #[test]
    fn selectors_see_driver_attributes_and_capacity() {
        assert!(taken("device.driver == 'gpu.nvidia.com'"));
        assert!(taken("device.attributes['gpu.nvidia.com'].productName == 'H100'"));
        assert!(taken(
            "device.attributes['gpu.nvidia.com'].index < 4 && device.attributes['fabric.example.com'].linked"
        ));
        assert!(taken("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"));
        assert!(!taken("device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('80Gi'))"));
        assert!(taken("device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('535.0.0'))"));
    }

    #[test]
    fn an_expression_that_fails_takes_nothing() {
        assert!(!taken("device.attributes['gpu.nvidia.com'].absent == 'x'"));
        assert!(!taken("'text'"));
    }

    #[test]
    fn an_expression_that_is_none_is_told() {
        for text in ["device.", "", &"(".repeat(5000), &"1+".repeat(20_000)] {
            assert!(Filter::of(&[], &[text.to_owned()], &[]).problem().is_some(), "{text:.20}");
        }
        assert_eq!(Filter::of(&[], &["true".to_owned()], &[]).problem(), None);
        assert!(!taken(&format!("{}true", "!".repeat(9001))));
    }

    #[test]
    fn a_tainted_device_is_for_those_who_tolerate_it() {
        let taint = Taint { key: "broken".to_owned(), value: "yes".to_owned(), effect: "NoSchedule".to_owned() };
        let content = [Content { taints: vec![taint], ..gpu() }];
        assert!(!Filter::default().matches(&content)[0]);
        let any = DeviceToleration { operator: Some("Exists".to_owned()), ..DeviceToleration::default() };
        assert!(Filter::of(&[], &[], &[any]).matches(&content)[0]);
    }
}
