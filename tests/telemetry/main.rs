//! Spans as a collector gets them: names, ids, links, outcomes; and that no collector can hold up or fail work.

mod outcomes;
mod quiet;
