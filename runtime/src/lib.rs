//! The PowerContext server.
