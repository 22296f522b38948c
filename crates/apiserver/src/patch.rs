//! JSON, merge and strategic-merge patch.
