//! Where in an object an error is: `spec.containers[0].resources.limits[cpu]`.
//!
//! A path is a chain of borrowed steps on the stack, so that checking a valid object allocates nothing; it becomes text only in
//! an error.

use std::fmt;

/// A field path as `field.Path` of apimachinery prints it.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    /// A first name, or several joined by dots.
    Name(&'a str),
    /// A field of the parent.
    Child(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// A field below this one.
    pub(crate) fn child(&'a self, name: &'a str) -> Self {
        match self {
            Self::Name("") => Self::Name(name),
            _ => Self::Child(self, name),
        }
    }

    /// An element of this list.
    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// An entry of this map.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Child(parent, name) => write!(formatter, "{parent}.{name}"),
            Self::Index(parent, index) => write!(formatter, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(formatter, "{parent}[{key}]"),
        }
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_prints_as_kubernetes_prints_it() {
        let spec = Path::Name("spec");
        let containers = spec.child("containers");
        let container = containers.index(0);
        let limits = container.child("resources.limits");
        assert_eq!(limits.key("nvidia.com/gpu").to_string(), "spec.containers[0].resources.limits[nvidia.com/gpu]");
    }
}
