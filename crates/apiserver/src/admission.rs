//! Admission: what happens to an object between decoding and storing.
