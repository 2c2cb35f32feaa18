//! Model providers: the only door to a language model.
