//! Objects without the record of who wrote which field.
//!
//! Servers send `metadata.managedFields` with every object; it is often longer than the rest, and nobody here reads it. It is passed over
//! while an object is read, not thrown away afterwards: that is a third of the work of a watch.

use std::{borrow::Cow, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor, value::CowStrDeserializer},
    forward_to_deserialize_any,
};

/// An object that is read without its managed fields.
#[derive(Clone, Debug)]
pub struct Lean<K>(pub K);

impl<K> From<K> for Lean<K> {
    fn from(object: K) -> Self {
        Self(object)
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(Filtered { inner: deserializer, level: Level::Object }).map(Self)
    }
}

impl<K: Serialize> Serialize for Lean<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<K: Resource> Resource for Lean<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Where in an object a reader is. Deeper down nothing is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Object,
    Metadata,
}

/// A deserializer, visitor or map from which the managed fields are missing.
struct Filtered<T> {
    inner: T,
    level: Level,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Filtered<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Filtered { inner: visitor, level: self.level })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Filtered { inner: visitor, level: self.level })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filtered<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Filtered { inner: deserializer, level: self.level })
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Entries { map, level: self.level, in_metadata: false })
    }
}

struct Entries<A> {
    map: A,
    level: Level,
    /// The value that comes next is the metadata.
    in_metadata: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<FieldName<'de>>()? {
            if self.level == Level::Metadata && key.0 == "managedFields" {
                self.map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.in_metadata = self.level == Level::Object && key.0 == "metadata";
            let key: CowStrDeserializer<'de, A::Error> = key.0.into_deserializer();
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.in_metadata {
            self.map.next_value_seed(Filtered { inner: seed, level: Level::Metadata })
        } else {
            self.map.next_value_seed(seed)
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Filtered<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Filtered { inner: deserializer, level: self.level })
    }
}

/// Reads metadata without the managed fields.
pub(crate) fn metadata<'de>() -> impl DeserializeSeed<'de, Value = ObjectMeta> {
    Filtered { inner: PhantomData, level: Level::Metadata }
}

/// A key of a map, or another short word, borrowed where it can be.
pub(crate) struct FieldName<'de>(pub(crate) Cow<'de, str>);

impl<'de> Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl<'de> Visitor<'de> for Word {
            type Value = FieldName<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, word: &'de str) -> Result<FieldName<'de>, E> {
                Ok(FieldName(Cow::Borrowed(word)))
            }

            fn visit_str<E>(self, word: &str) -> Result<FieldName<'de>, E> {
                Ok(FieldName(Cow::Owned(word.to_owned())))
            }
        }
        deserializer.deserialize_str(Word)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::{DynamicObject, PartialObjectMeta, WatchEvent};
    use serde_json::json;

    use super::*;

    fn pod() -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "uid": "1",
                "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
                "labels": {"managedFields": "kept", "metadata": "kept", "q\"uote": "kept"},
            },
            "spec": {"containers": [{"name": "c", "env": [{"name": "managedFields", "value": "kept"}]}]},
        })
    }

    fn without(mut object: serde_json::Value) -> serde_json::Value {
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object
    }

    #[test]
    fn everything_but_the_managed_fields_is_read() {
        let text = pod().to_string();
        let lean: Lean<Pod> = serde_json::from_str(&text).unwrap();
        let plain: Pod = serde_json::from_value(without(pod())).unwrap();
        assert_eq!(lean.0, plain);
        let dynamic: Lean<DynamicObject> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(&dynamic).unwrap(), without(pod()));
        let partial: Lean<PartialObjectMeta<Pod>> = serde_json::from_str(&text).unwrap();
        assert_eq!(partial.0.metadata.labels, plain.metadata.labels);
    }

    #[test]
    fn events_of_a_watch_are_read_the_same_way() {
        let event = json!({"type": "MODIFIED", "object": pod()}).to_string();
        let WatchEvent::Modified(lean) = serde_json::from_str::<WatchEvent<Lean<Pod>>>(&event).unwrap() else {
            panic!("another event")
        };
        assert_eq!((lean.0.metadata.name.as_deref(), lean.0.metadata.managed_fields.as_ref()), (Some("a"), None));
    }

    #[test]
    fn what_is_no_object_is_refused_as_before() {
        for text in ["1", "[]", "\"a\"", "{\"metadata\": 1}", "{\"metadata\": {\"name\": 1}}", "{"] {
            assert!(serde_json::from_str::<Lean<Pod>>(text).is_err(), "{text}");
        }
    }
}
