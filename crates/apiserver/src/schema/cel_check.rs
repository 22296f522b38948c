//! Fields that a CEL rule names and the schema does not have: the real server's type checker refuses such a definition.
//!
//! Only chains of fields, list elements and loop variables are followed from `self` and `oldSelf`; whatever a function returns is
//! of unknown type and not looked into.

use std::collections::BTreeMap;

use cel::common::ast::{EntryExpr, Expr, operators};

use super::cel_value::{Root, escape};
use super::{Schema, Type};

const MAXIMUM_DEPTH: usize = 256;

/// What is wrong with an expression.
pub(super) struct Mistake {
    /// The text at its place.
    pub(super) word: String,
    pub(super) message: String,
    /// How far behind the beginning of the word the place is.
    pub(super) shift: usize,
}

/// The type of an expression, where it is known, or the first mistake in it. `known` are names besides those of loops.
pub(super) fn check(
    schema: &Schema,
    expression: &cel::IdedExpr,
    root: Root,
    known: &[&str],
) -> Result<Option<Type>, Mistake> {
    let start = Node { schema, root };
    let mut scope: Scope<'_> = known.iter().map(|name| ((*name).to_owned(), None)).collect();
    scope.extend([("self".to_owned(), Some(start)), ("oldSelf".to_owned(), Some(start))]);
    let mut checker = Checker { mistake: None };
    let kind = checker.kind(&expression.expr, &mut scope, 0).map(|node| node.schema.kind);
    match checker.mistake {
        Some(mistake) => Err(mistake),
        None => Ok(kind),
    }
}

/// How deep an expression is nested.
pub(super) fn nesting(expression: &cel::IdedExpr) -> usize {
    let deepest = |parts: &mut dyn Iterator<Item = &cel::IdedExpr>| parts.map(nesting).max().unwrap_or_default();
    1 + match &expression.expr {
        Expr::Select(select) => nesting(&select.operand),
        Expr::Call(call) => deepest(&mut call.args.iter().chain(call.target.as_deref())),
        Expr::List(list) => deepest(&mut list.elements.iter()),
        Expr::Comprehension(l) => {
            deepest(&mut [&l.iter_range, &l.accu_init, &l.loop_cond, &l.loop_step, &l.result].into_iter())
        }
        Expr::Map(map) => deepest(&mut map.entries.iter().flat_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
            EntryExpr::StructField(field) => vec![&field.value],
        })),
        Expr::Struct(structure) => deepest(&mut structure.entries.iter().filter_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => Some(&field.value),
            EntryExpr::MapEntry(_) => None,
        })),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => 0,
    }
}

/// Replaces `a.?b` by `a[?'b']`, which means the same: version 0.13 of the library fails on the first form when there is no `b`.
pub(super) fn mend(expression: &mut cel::IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            }
            call.args.iter_mut().chain(call.target.as_deref_mut()).for_each(mend);
        }
        Expr::Select(select) => mend(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(mend),
        Expr::Comprehension(l) => {
            [&mut l.iter_range, &mut l.accu_init, &mut l.loop_cond, &mut l.loop_step, &mut l.result]
                .into_iter()
                .for_each(mend);
        }
        Expr::Map(map) => map.entries.iter_mut().for_each(mend_entry),
        Expr::Struct(structure) => structure.entries.iter_mut().for_each(mend_entry),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn mend_entry(entry: &mut cel::common::ast::IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::MapEntry(entry) => {
            mend(&mut entry.key);
            mend(&mut entry.value);
        }
        EntryExpr::StructField(field) => mend(&mut field.value),
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    schema: &'a Schema,
    root: Root,
}

impl<'a> Node<'a> {
    fn new(schema: &'a Schema) -> Self {
        Self { schema, root: Root::of(schema) }
    }
}

/// What names stand for; `None` for values of unknown type.
type Scope<'a> = BTreeMap<String, Option<Node<'a>>>;

struct Checker {
    mistake: Option<Mistake>,
}

impl Checker {
    /// The node an expression denotes, if known; notes the first field that is missing on the way.
    fn kind<'a>(&mut self, expression: &Expr, scope: &mut Scope<'a>, depth: usize) -> Option<Node<'a>> {
        if depth > MAXIMUM_DEPTH {
            return None;
        }
        match expression {
            Expr::Ident(name) => {
                let node = scope.get(name);
                // Names that the parser makes for its loops begin with `@` or underscores.
                if node.is_none() && !name.starts_with(['@', '_']) {
                    self.note(name.clone(), format!("undeclared reference to '{name}' (in container '')"));
                }
                node.copied().flatten()
            }
            Expr::Select(select) => {
                let operand = self.kind(&select.operand.expr, scope, depth + 1)?;
                let field = self.field(operand, &select.field);
                // `has(a.b)` asks for the field; it is not its value.
                if select.test { None } else { field }
            }
            Expr::Call(call) => {
                let target = call.target.as_ref().and_then(|t| self.kind(&t.expr, scope, depth + 1));
                let arguments: Vec<_> = call.args.iter().map(|a| self.kind(&a.expr, scope, depth + 1)).collect();
                match call.func_name.as_str() {
                    "_[_]" => {
                        let list = arguments.first().copied().flatten().or(target)?;
                        list.schema.items.as_deref().or(list.schema.additional.as_deref()).map(Node::new)
                    }
                    _ => None,
                }
            }
            Expr::Comprehension(loop_) => {
                let range = self.kind(&loop_.iter_range.expr, scope, depth + 1);
                self.kind(&loop_.accu_init.expr, scope, depth + 1);
                let mut inner = scope.clone();
                // A loop over a list sees elements; over a map it sees keys, and with two variables keys and values.
                let element = range.and_then(|r| r.schema.items.as_deref()).map(Node::new);
                match &loop_.iter_var2 {
                    None => inner.insert(loop_.iter_var.clone(), element),
                    Some(second) => {
                        let value = range.and_then(|r| r.schema.additional.as_deref()).map(Node::new);
                        inner.insert(second.clone(), element.or(value));
                        inner.insert(loop_.iter_var.clone(), None)
                    }
                };
                inner.insert(loop_.accu_var.clone(), None);
                for part in [&loop_.loop_cond, &loop_.loop_step, &loop_.result] {
                    self.kind(&part.expr, &mut inner, depth + 1);
                }
                None
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.kind(&element.expr, scope, depth + 1);
                }
                None
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.kind(&entry.key.expr, scope, depth + 1);
                        self.kind(&entry.value.expr, scope, depth + 1);
                    }
                }
                None
            }
            Expr::Struct(_) | Expr::Literal(_) | Expr::Unspecified => None,
        }
    }

    fn field<'a>(&mut self, node: Node<'a>, name: &str) -> Option<Node<'a>> {
        let Node { schema, root } = node;
        if let Some((_, child)) = schema.properties.iter().find(|(field, _)| escape(field).as_deref() == Some(name)) {
            // The metadata of a whole object is typed by the server, not by the definition.
            let untyped =
                root == Root::Yes && name == "metadata" || matches!(child.kind, Type::Any | Type::IntOrString);
            return (!untyped).then(|| Node::new(child));
        }
        if let Some(child) = &schema.additional {
            return Some(Node::new(child));
        }
        let of_every_object = root == Root::Yes && ["apiVersion", "kind", "metadata"].contains(&name);
        let scalar = match schema.kind {
            Type::String if schema.format.is_none() => "string",
            Type::Integer => "int",
            Type::Number => "double",
            Type::Boolean => "bool",
            Type::Object if !of_every_object => {
                self.note(format!(".{name}"), format!("undefined field '{name}'"));
                return None;
            }
            _ => return None,
        };
        self.note(format!(".{name}"), format!("type '{scalar}' does not support field selection"));
        None
    }

    fn note(&mut self, word: String, message: String) {
        if self.mistake.is_none() {
            self.mistake = Some(Mistake { word, message, shift: 0 });
        }
    }
}
