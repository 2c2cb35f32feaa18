//! Artifact families: what each processor does with its input.
