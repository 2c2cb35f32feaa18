//! An env file with every setting, its meaning and its default, written from the table.

use std::fmt::Write as _;

use super::keys::{Default, Documented, GROUPS, PREFIX};

const HEAD: &str = "# Settings of the PowerContext server, for `powercontext server run --env-file FILE`.
#
# Printed by `powercontext server config --example`. A line without # sets what holds anyway; a line with # shows a setting
# that is unset. The environment wins over this file, and flags win over both. A value may stand in single quotes (kept as it
# is) or in double quotes.
";

/// Text of the file. As it is, it changes nothing.
pub fn example() -> String {
    let mut file = HEAD.to_owned();
    // Writing to a String cannot fail.
    let _ = writeln!(
        file,
        "# Names without a prefix in a meaning stand for those with {PREFIX}."
    );
    for group in GROUPS {
        let _ = writeln!(file, "\n\n# ---- {} ----", group.title);
        for key in group.keys {
            one(&mut file, *key);
        }
    }
    file
}

fn one(file: &mut String, key: &dyn Documented) {
    file.push('\n');
    for line in key.help() {
        let _ = writeln!(file, "# {}", line.trim());
    }
    let _ = writeln!(file, "# Must be {}.", key.accepted());
    let _ = match key.default() {
        Default::Text(text) => writeln!(file, "{}={text}", key.name()),
        Default::Unset(meaning) => writeln!(file, "# Unset: {meaning}.\n#{}=", key.name()),
    };
}
