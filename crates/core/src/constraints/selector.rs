//! Selectors in words: requirements on labels, terms about nodes, and which pods a rule speaks of.
//!
//! A requirement that Kubernetes would not accept (an `In` without values, a `Gt` without one integer) holds nowhere,
//! as in kube-scheduler.

use crate::{
    cluster::{node::Node, words::Words},
    delta::{self, Operator},
    ids::Word,
};

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Requirement {
    key: Word,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Test {
    In(Box<[Word]>),
    NotIn(Box<[Word]>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
    Never,
}

/// A term about a node: all of it must hold. An empty one holds nowhere.
#[derive(Clone, Debug)]
pub(crate) struct NodeTerm {
    labels: Box<[Requirement]>,
    names: Box<[NameTest]>,
}

#[derive(Clone, Debug)]
enum NameTest {
    In(Box<[String]>),
    NotIn(Box<[String]>),
    Never,
}

/// Which pods a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodMatch {
    /// `None`: any namespace.
    namespaces: Option<Box<[Word]>>,
    /// `None`: no pod.
    requirements: Option<Box<[Requirement]>>,
}

impl Requirement {
    fn new(expression: &delta::Expression, words: &mut Words) -> Self {
        let mut values: Vec<Word> = expression.values.iter().map(|value| words.intern(value)).collect();
        values.sort_unstable();
        values.dedup();
        let number = match expression.values.as_slice() {
            [value] => value.parse::<i64>().ok(),
            _ => None,
        };
        let test = match expression.operator {
            Operator::In if !values.is_empty() => Test::In(values.into()),
            Operator::NotIn if !values.is_empty() => Test::NotIn(values.into()),
            Operator::Exists if values.is_empty() => Test::Exists,
            Operator::DoesNotExist if values.is_empty() => Test::DoesNotExist,
            Operator::Gt => number.map_or(Test::Never, Test::Above),
            Operator::Lt => number.map_or(Test::Never, Test::Below),
            _ => Test::Never,
        };
        Self { key: words.intern(&expression.key), test }
    }

    /// The requirement of a node selector: the label has this value.
    pub(crate) fn equals(key: &str, value: &str, words: &mut Words) -> Self {
        Self { key: words.intern(key), test: Test::In(Box::new([words.intern(value)])) }
    }

    /// Whether labels, sorted by key, meet it.
    pub(crate) fn holds(&self, labels: &[(Word, Word)], words: &Words) -> bool {
        let value = labels.binary_search_by_key(&self.key, |(key, _)| *key).ok().map(|place| labels[place].1);
        let number = |value: Word| words.text(value).parse::<i64>().ok();
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(&value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(&value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Above(least) => value.and_then(number).is_some_and(|number| number > *least),
            Test::Below(most) => value.and_then(number).is_some_and(|number| number < *most),
            Test::Never => false,
        }
    }
}

impl NameTest {
    fn new(expression: &delta::Expression) -> Self {
        match expression.operator {
            Operator::In => Self::In(expression.values.clone().into()),
            Operator::NotIn if !expression.values.is_empty() => Self::NotIn(expression.values.clone().into()),
            _ => Self::Never,
        }
    }

    fn holds(&self, name: &str) -> bool {
        match self {
            Self::In(names) => names.iter().any(|known| known == name),
            Self::NotIn(names) => names.iter().all(|known| known != name),
            Self::Never => false,
        }
    }
}

impl NodeTerm {
    /// Compiles terms of which one must hold.
    pub(crate) fn list(terms: &[delta::Term], words: &mut Words) -> Box<[Self]> {
        terms.iter().map(|term| Self::new(term, words)).collect()
    }

    /// Compiles a term.
    pub(crate) fn new(term: &delta::Term, words: &mut Words) -> Self {
        Self {
            labels: term.labels.iter().map(|expression| Requirement::new(expression, words)).collect(),
            names: term.names.iter().map(NameTest::new).collect(),
        }
    }

    /// Whether a node is meant.
    pub(crate) fn holds(&self, node: &Node, words: &Words) -> bool {
        !(self.labels.is_empty() && self.names.is_empty())
            && self.labels.iter().all(|requirement| requirement.holds(&node.labels, words))
            && self.names.iter().all(|test| test.holds(&node.name))
    }
}

impl PodMatch {
    /// Which pods a term between pods speaks of.
    pub(crate) fn new(term: &delta::PodTerm, words: &mut Words) -> Self {
        let namespaces = term.namespaces.as_ref().map(|names| {
            let mut names: Vec<Word> = names.iter().map(|name| words.intern(name)).collect();
            names.sort_unstable();
            names.dedup();
            names.into()
        });
        Self { namespaces, requirements: requirements(term.selector.as_ref(), words) }
    }

    /// Pods of one namespace.
    pub(crate) fn within(namespace: Word, requirements: Option<&[Requirement]>) -> Self {
        Self { namespaces: Some(Box::new([namespace])), requirements: requirements.map(Into::into) }
    }

    /// Whether a pod is one of them.
    pub(crate) fn holds(&self, namespace: Word, labels: &[(Word, Word)], words: &Words) -> bool {
        self.namespaces.as_ref().is_none_or(|namespaces| namespaces.binary_search(&namespace).is_ok())
            && self
                .requirements
                .as_ref()
                .is_some_and(|requirements| requirements.iter().all(|requirement| requirement.holds(labels, words)))
    }

    /// Whether no pod can be one of them.
    pub(crate) fn is_void(&self) -> bool {
        self.requirements
            .as_ref()
            .is_none_or(|requirements| requirements.iter().any(|requirement| requirement.test == Test::Never))
    }

    /// The label with some values of which every such pod has one.
    pub(crate) fn anchor(&self) -> Option<(Word, &[Word])> {
        self.requirements.iter().flatten().find_map(|requirement| match &requirement.test {
            Test::In(values) => Some((requirement.key, values.as_ref())),
            _ => None,
        })
    }
}

/// Compiles a label selector; `None` selects nothing.
pub(crate) fn requirements(selector: Option<&delta::Selector>, words: &mut Words) -> Option<Box<[Requirement]>> {
    let expressions = &selector?.expressions;
    Some(expressions.iter().map(|expression| Requirement::new(expression, words)).collect())
}
