//! Protobuf bodies of the built-in kinds.
