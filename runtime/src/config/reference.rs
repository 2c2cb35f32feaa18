//! The reference page of all settings, written from the table.

use std::fmt::Write as _;

use super::keys::{Default, GROUPS, PREFIX};

const HEAD: &str = "# Configuration

Written by `make gen` from `runtime/src/config/keys.rs`.

Settings come from flags of the command line, the environment, the file of `--env-file`, and defaults, in this order: the first that
names a setting wins. `powercontext server config` reads them as the server would and tells every fault at once: the variable, where its
text came from, and what is expected, but never the text. With a fault the server does not start (exit 2). Variables that are not listed
here are ignored. An empty text is a text, except where \"empty means unset\" is said.

A line of the env file is `NAME=VALUE`; blank lines and lines that start with `#` are skipped. A value may stand in single quotes (kept as
it is) or double quotes (`\\n`, `\\\"` and `\\\\` are read); without quotes it ends before ` #`. Nothing is expanded.
";

/// Text of `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for group in GROUPS {
        page.push_str("\n## ");
        page.push_str(group.title);
        page.push_str("\n\n| variable | default | must be | meaning |\n|---|---|---|---|\n");
        for key in group.keys {
            let default = match key.default() {
                Default::Text(text) => format!("`{text}`"),
                Default::Unset(meaning) => format!("unset: {meaning}"),
            };
            let help: Vec<_> = key.help().iter().map(|line| line.trim()).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(
                page,
                "| `{}` | {default} | {} | {} |",
                key.name(),
                key.accepted(),
                help.join(" ")
            );
        }
    }
    let _ = write!(
        page,
        "\nNames without a prefix in a meaning or default stand for those with `{PREFIX}`.\n"
    );
    page
}
