//! Settings: text to checked values, every fault at once.
