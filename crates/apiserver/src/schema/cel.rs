//! CEL rules of custom resources (`x-kubernetes-validations`): compiled once per schema node, evaluated per object.
//!
//! `self` is the value of the node, `oldSelf` its counterpart before an update. A rule that mentions `oldSelf` runs only when there
//! is one, unless it says `optionalOldSelf`. A rule that fails on a value that did not change is let through on update.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, OnceLock};

use cel::common::ast::{CallExpr, Expr};
use cel::objects::OptionalValue;
use cel::parser::Parser;
use cel::{Context, ExecutionError, Value as CelValue};
use kube_cel::KubeCelExt as _;
use serde_json::Value;

use super::cel_value::{Root, to_cel};
use super::structural::{children, counterpart};
use super::{Rule, Schema, Type, cel_check};
use crate::status::FieldError;

/// Longer expressions are refused.
const MAXIMUM_LENGTH: usize = 16 * 1024;
/// Expressions nested deeper are refused; those of the real server have a similar limit (250).
const MAXIMUM_NESTING: usize = 250;
/// Evaluating takes up to 25 KB of stack per level in a debug build: deeper expressions get a stack of their own.
const SHALLOW: usize = 16;
const DEEP_STACK: usize = 64 * 1024 * 1024;
/// A longer message of a `messageExpression` is not used.
const MAXIMUM_MESSAGE: usize = 5 * 1024;
const MAXIMUM_DEPTH: usize = 256;
const QUANTITY_RULE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Names that stand before the functions of a library.
const NAMESPACES: [&str; 7] = ["optional", "sets", "math", "base64", "format", "strings", "ip"];
/// Names of types, as values that `type(x)` can be compared with.
const TYPE_NAMES: [&str; 9] = ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"];

/// The compiled rules of one schema node, made at their first use and shared by all copies of the node.
#[derive(Clone, Default)]
pub struct Programs(Arc<OnceLock<Vec<Compiled>>>);

impl std::fmt::Debug for Programs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Programs").field(&self.0.get().map_or(0, Vec::len)).finish()
    }
}

struct Compiled {
    rule: Result<Expression, String>,
    message: Option<Expression>,
    uses_old: bool,
}

/// A parsed expression and how deep it is nested.
struct Expression {
    program: cel::IdedExpr,
    nesting: usize,
}

impl Programs {
    fn get(&self, rules: &[Rule]) -> &[Compiled] {
        self.0.get_or_init(|| rules.iter().map(Compiled::new).collect())
    }
}

impl Compiled {
    fn new(rule: &Rule) -> Self {
        let program = compile(&rule.rule);
        let uses_old = program.as_ref().is_ok_and(|e| e.program.references().has_variable("oldSelf"));
        Self { rule: program, message: rule.message_expression.as_deref().and_then(|m| compile(m).ok()), uses_old }
    }
}

/// The functions of CEL and of Kubernetes.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    // The library has no type values: `type(self) == int` compares names.
    for name in TYPE_NAMES {
        context.add_variable_from_value(name, CelValue::String(Arc::new(name.to_owned())));
    }
    context.add_function("type", |value: CelValue| Arc::new(type_value(&value).to_owned()));
    context.add_function("dyn", |value: CelValue| -> Result<CelValue, ExecutionError> { Ok(value) });
    context
});

fn type_value(value: &CelValue) -> &'static str {
    match value {
        CelValue::Int(_) => "int",
        CelValue::UInt(_) => "uint",
        CelValue::Float(_) => "double",
        CelValue::Bool(_) => "bool",
        CelValue::String(_) => "string",
        CelValue::Bytes(_) => "bytes",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        _ => "unknown",
    }
}

/// Parses an expression; the error is what a person needs to find the mistake.
fn compile(source: &str) -> Result<Expression, String> {
    if source.len() > MAXIMUM_LENGTH {
        return Err(format!("ERROR: <input>:1:1: expression is longer than {MAXIMUM_LENGTH} bytes"));
    }
    let parse = || {
        let parser = Parser::new().enable_optional_syntax(true);
        let mut program = parser.parse(source).map_err(|errors| errors.to_string().replace("\n| ", "\n | "))?;
        let nesting = cel_check::nesting(&program);
        if nesting > MAXIMUM_NESTING {
            return Err(format!("ERROR: <input>:1:1: expression recursion limit exceeded: {MAXIMUM_NESTING}"));
        }
        cel_check::mend(&mut program);
        Ok(Expression { program, nesting })
    };
    // The parser is recursive, and code of a third party: neither may take the server down.
    on_deep_stack(parse).unwrap_or_else(|| Err("ERROR: <input>:1:1: the expression cannot be parsed".to_owned()))
}

/// Runs a function with plenty of stack; `None` if it panics.
fn on_deep_stack<T: Send>(function: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(DEEP_STACK).spawn_scoped(scope, function).ok()?;
        thread.join().ok()
    })
}

/// What an expression is for, which decides the type it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A rule: true or false.
    Rule,
    /// A message: text.
    Message,
}

/// Why an expression cannot be used with a schema, if so: it does not parse, names what does not exist, or has the wrong type.
pub fn compile_error(schema: &Schema, expression: &str, root: Root, purpose: Purpose) -> Option<String> {
    let program = match compile(expression) {
        Ok(expression) => expression.program,
        Err(why) => return Some(format!("compilation failed: {why}")),
    };
    let mut known: Vec<&str> = TYPE_NAMES.to_vec();
    known.extend(["self", "oldSelf"]);
    known.extend(NAMESPACES);
    let unknown_function = program.references().functions().into_iter().find(|name| !is_function(name)).map(|name| {
        let message = format!("undeclared reference to '{name}' (in container '')");
        cel_check::Mistake { word: format!("{name}("), message, shift: name.len() }
    });
    let checked = match unknown_function {
        Some(mistake) => Err(mistake),
        None => cel_check::check(schema, &program, root, &known),
    };
    match checked {
        Err(mistake) => {
            // The parser keeps no positions: the first place where the word is written is the one meant.
            let offset = expression.find(&mistake.word).map_or(0, |offset| offset + mistake.shift);
            let line_start = expression[..offset].rfind('\n').map_or(0, |newline| newline + 1);
            let line = expression[line_start..].lines().next().unwrap_or_default();
            let (row, column) = (expression[..line_start].matches('\n').count() + 1, offset - line_start);
            Some(format!(
                "compilation failed: ERROR: <input>:{row}:{}: {}\n | {line}\n | {}^",
                column + 1,
                mistake.message,
                ".".repeat(column)
            ))
        }
        Ok(kind) => match (purpose, kind) {
            (Purpose::Rule, Some(Type::Object | Type::Array | Type::String | Type::Integer | Type::Number)) => {
                Some("cel expression must evaluate to a bool".to_owned())
            }
            (Purpose::Message, Some(Type::Object | Type::Array | Type::Boolean | Type::Integer | Type::Number)) => {
                Some("messageExpression must evaluate to a string".to_owned())
            }
            _ => None,
        },
    }
}

/// Whether there is a function of this name, perhaps behind the name of a library; operators count as functions.
fn is_function(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_alphabetic())
        || is_registered(name)
        || NAMESPACES.iter().any(|library| is_registered(&format!("{library}.{name}")))
}

fn is_registered(name: &str) -> bool {
    // The library does not tell what it knows, but it tells an unknown function from one that is called wrongly.
    let call = CallExpr { func_name: name.to_owned(), ..CallExpr::default() };
    let program = cel::IdedExpr { id: 0, expr: Expr::Call(call) };
    let unknown = format!("undeclared reference to '{name}'");
    execute(&Expression { program, nesting: 1 }, &FUNCTIONS).err() != Some(unknown)
}

/// Whether an expression mentions `oldSelf`.
pub fn uses_old_self(expression: &str) -> bool {
    compile(expression).is_ok_and(|e| e.program.references().has_variable("oldSelf"))
}

/// The failed rules of an object.
pub(super) fn check(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut walker = Walker { errors: Vec::new() };
    walker.node(schema, object, old, "", Root::Yes, old.map(|old| (object, old)), 0);
    walker.errors
}

struct Walker {
    errors: Vec<FieldError>,
}

/// The nearest value at or above a node that has a counterpart before the update, with that counterpart.
type Nearest<'a> = Option<(&'a Value, &'a Value)>;

impl Walker {
    #[expect(clippy::too_many_arguments, reason = "a recursive walk carries its whole context")]
    fn node<'a>(
        &mut self,
        schema: &Schema,
        value: &'a Value,
        old: Option<&'a Value>,
        path: &str,
        root: Root,
        nearest: Nearest<'a>,
        depth: usize,
    ) {
        if value.is_null() || !schema.has_rules || depth > MAXIMUM_DEPTH {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.rules.is_empty() {
            self.rules(schema, schema, value, old, path, root, nearest);
        }
        for branch in schema.constraints.iter().flat_map(|c| &c.all_of) {
            // Rules of a branch see the value through the schema of the node itself.
            self.rules(branch, schema, value, old, path, root, nearest);
        }
        match value {
            Value::Object(fields) => {
                for (name, child, value) in children(schema, fields) {
                    let path = if schema.properties.contains_key(name) {
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") }
                    } else {
                        format!("{path}[{name}]")
                    };
                    let old = old.and_then(|o| o.get(name));
                    let nearest = old.map(|old| (value, old)).or(nearest);
                    self.node(child, value, old, &path, Root::of(child), nearest, depth + 1);
                }
            }
            Value::Array(elements) => {
                let Some(items) = schema.items.as_deref() else { return };
                for (index, element) in elements.iter().enumerate() {
                    let old = counterpart(schema, element, old);
                    let nearest = old.map(|old| (element, old)).or(nearest);
                    self.node(items, element, old, &format!("{path}[{index}]"), Root::of(items), nearest, depth + 1);
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a recursive walk carries its whole context")]
    fn rules(
        &mut self,
        owner: &Schema,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        root: Root,
        nearest: Nearest<'_>,
    ) {
        if owner.rules.is_empty() {
            return;
        }
        let this = to_cel(schema, value, root);
        let before = old.map(|old| to_cel(schema, old, root));
        let type_name = Value::from(type_name(schema));
        let name = if path.is_empty() { "<nil>" } else { path };
        for (rule, compiled) in owner.rules.iter().zip(owner.programs.get(&owner.rules)) {
            let program = match &compiled.rule {
                Ok(expression) => expression,
                Err(why) => {
                    self.errors.push(FieldError::invalid(name, &type_name, format!("rule compile error: {why}")));
                    continue;
                }
            };
            if compiled.uses_old && before.is_none() && !rule.optional_old_self {
                continue;
            }
            let mut scope = FUNCTIONS.new_inner_scope();
            scope.add_variable_from_value("self", this.clone());
            if rule.optional_old_self {
                let optional = before.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(optional)));
            } else if let Some(before) = &before {
                scope.add_variable_from_value("oldSelf", before.clone());
            }
            match execute(program, &scope) {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) if !compiled.uses_old && nearest.is_some_and(|(new, old)| new == old) => {}
                Ok(_) => {
                    let message = compiled.message.as_ref().and_then(|m| message_of(m, &scope));
                    self.errors.push(failure(rule, message, schema, path, &type_name));
                }
                Err(why) => {
                    let subject = rule.message.as_deref().unwrap_or(&rule.rule).trim();
                    let text = if why == "no such overload" {
                        format!(
                            "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {subject}"
                        )
                    } else {
                        format!("{why} evaluating rule: {subject}")
                    };
                    self.errors.push(FieldError::invalid(name, &type_name, text));
                }
            }
        }
    }
}

/// Runs a program; whatever goes wrong inside becomes an error.
fn execute(expression: &Expression, scope: &Context<'_>) -> Result<CelValue, String> {
    let run = || catch_unwind(AssertUnwindSafe(|| CelValue::resolve(&expression.program, scope))).ok();
    let result = if expression.nesting > SHALLOW { on_deep_stack(run).flatten() } else { run() };
    match result {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(match error {
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::NoSuchOverload
            | ExecutionError::UnsupportedBinaryOperator(..)
            | ExecutionError::ValuesNotComparable(..) => "no such overload".to_owned(),
            ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
            ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
            ExecutionError::Overflow(..) => "integer overflow".to_owned(),
            ExecutionError::IndexOutOfBounds(index) => match index {
                CelValue::Int(index) => format!("index out of bounds: {index}"),
                other => format!("index out of bounds: {other:?}"),
            },
            ExecutionError::FunctionError { function, message } => match function.as_str() {
                "int" | "uint" | "double" | "bool" => format!("type conversion error from 'string' to '{function}'"),
                "duration" => "type conversion error from 'string' to 'google.protobuf.Duration'".to_owned(),
                "timestamp" => "type conversion error from 'string' to 'google.protobuf.Timestamp'".to_owned(),
                "quantity" => QUANTITY_RULE.to_owned(),
                _ => message,
            },
            ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
            other => other.to_string(),
        }),
        None => Err("the expression could not be evaluated".to_owned()),
    }
}

fn message_of(program: &Expression, scope: &Context<'_>) -> Option<String> {
    let Ok(CelValue::String(text)) = execute(program, scope) else { return None };
    let text = text.trim();
    (!text.is_empty() && !text.contains('\n') && text.len() <= MAXIMUM_MESSAGE).then(|| text.to_owned())
}

fn failure(rule: &Rule, message: Option<String>, schema: &Schema, path: &str, type_name: &Value) -> FieldError {
    let path = match &rule.field_path {
        Some(more) => extend(path, schema, more),
        None if path.is_empty() => "<nil>".to_owned(),
        None => path.to_owned(),
    };
    let detail = message.unwrap_or_else(|| match &rule.message {
        Some(message) => message.trim().to_owned(),
        None => format!("failed rule: {}", rule.rule.trim()),
    });
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
        Some("FieldValueRequired") => FieldError::required(path, &detail),
        Some("FieldValueDuplicate") => FieldError::duplicate(path, type_name),
        _ => FieldError::invalid(path, type_name, detail),
    }
}

/// A path with a `fieldPath` (`.a['b']`) behind it: fields are written with a dot, keys of maps in brackets.
fn extend(path: &str, schema: &Schema, more: &str) -> String {
    let mut path = path.to_owned();
    let mut schema = Some(schema);
    let names = more.replace("['", ".").replace("']", "");
    for name in names.split('.').filter(|name| !name.is_empty()) {
        if schema.is_some_and(|s| s.properties.is_empty() && s.additional.is_some()) {
            path = format!("{path}[{name}]");
        } else {
            path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        }
        schema = schema.and_then(|s| s.field(name));
    }
    path
}

/// The type word errors show instead of the value.
fn type_name(schema: &Schema) -> &'static str {
    match schema.kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::Any | Type::IntOrString => "",
    }
}
