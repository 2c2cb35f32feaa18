//! Reads `CREATE` statements into a catalog that can be compared.
//!
//! The same reader takes the embedded SQL and what an engine shows of its tables (`SHOW CREATE TABLE`, `sqlite_master`), so
//! the expectation is derived from the migrations and never written a second time. Spelling that carries no meaning is
//! dropped: case, quotes around names, display widths, parentheses in expressions, storage options.

use std::collections::BTreeMap;

/// What a schema holds; maps, so that the first difference is always the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Virtual tables and triggers by name, with their definition.
    pub others: BTreeMap<String, String>,
}

/// A table: each column, key and constraint with its canonical definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Columns by name.
    pub columns: BTreeMap<String, String>,
    /// `primary key`, and named keys, indexes, checks and foreign keys.
    pub parts: BTreeMap<String, String>,
}

/// What a statement makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A table.
    Table(String),
    /// An index of a table.
    Index {
        /// The table.
        table: String,
        /// The index.
        name: String,
    },
    /// A virtual table or a trigger.
    Other(String),
}

/// A statement that this reader does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a CREATE TABLE, INDEX, TRIGGER or VIRTUAL TABLE statement that can be read")]
pub struct Unreadable;

impl Catalog {
    /// Adds what a statement makes.
    ///
    /// # Errors
    /// [`Unreadable`] for any other statement.
    pub fn apply(&mut self, sql: &str) -> Result<Object, Unreadable> {
        let tokens = tokens(sql);
        let mut words = Reader::new(&tokens);
        words.expect("create")?;
        if words.take("table") {
            let name = words.next().ok_or(Unreadable)?.to_owned();
            let table = table(&name, words.rest())?;
            self.tables.insert(name.clone(), table);
            return Ok(Object::Table(name));
        }
        let unique = words.take("unique");
        if words.take("index") {
            let name = words.next().ok_or(Unreadable)?.to_owned();
            words.expect("on")?;
            let table = words.next().ok_or(Unreadable)?.to_owned();
            let kind = if unique { "unique" } else { "index" };
            let part = format!("{kind} {}", list(words.rest())?);
            let parts = &mut self.tables.get_mut(&table).ok_or(Unreadable)?.parts;
            parts.insert(name.clone(), part);
            return Ok(Object::Index { table, name });
        }
        if words.take("trigger") || (words.take("virtual") && words.take("table")) {
            let name = words.peek().ok_or(Unreadable)?.to_owned();
            self.others.insert(name.clone(), tokens.join(" "));
            return Ok(Object::Other(name));
        }
        Err(Unreadable)
    }

    /// Whether the object exists, in whatever shape.
    pub fn holds(&self, object: &Object) -> bool {
        match object {
            Object::Table(name) => self.tables.contains_key(name),
            Object::Index { table, name } => self.tables.get(table).is_some_and(|t| t.parts.contains_key(name)),
            Object::Other(name) => self.others.contains_key(name),
        }
    }

    /// Whether the object exists exactly as in `expected`.
    pub fn holds_as(&self, object: &Object, expected: &Self) -> bool {
        let part = |catalog: &Self, table: &str, name: &str| {
            let table = catalog.tables.get(table)?;
            table.parts.get(name).cloned()
        };
        self.holds(object)
            && match object {
                Object::Table(name) => self.tables.get(name) == expected.tables.get(name),
                Object::Index { table, name } => part(self, table, name) == part(expected, table, name),
                Object::Other(name) => self.others.get(name) == expected.others.get(name),
            }
    }
}

struct Reader<'t> {
    tokens: &'t [String],
}

impl<'t> Reader<'t> {
    fn new(tokens: &'t [String]) -> Self {
        Self { tokens }
    }

    fn peek(&self) -> Option<&'t str> {
        self.tokens.first().map(String::as_str)
    }

    fn next(&mut self) -> Option<&'t str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, word: &str) -> Result<(), Unreadable> {
        if self.take(word) { Ok(()) } else { Err(Unreadable) }
    }

    fn rest(&self) -> &'t [String] {
        self.tokens
    }
}

/// Splits a text into names and keywords in lower case, quoted strings as they are, and operators.
fn tokens(sql: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '-' if chars.peek() == Some(&'-') => while chars.next().is_some_and(|c| c != '\n') {},
            '`' => out.push(
                chars
                    .by_ref()
                    .take_while(|c| *c != '`')
                    .collect::<String>()
                    .to_lowercase(),
            ),
            '\'' | '"' => {
                let body: String = chars.by_ref().take_while(|inner| *inner != c).collect();
                out.push(format!("{c}{body}{c}"));
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                out.push(word.to_lowercase());
            }
            c => {
                let mut operator = String::from(c);
                if matches!(c, '<' | '>' | '!')
                    && let Some(second) = chars.next_if(|c| matches!(c, '=' | '>'))
                {
                    operator.push(second);
                }
                out.push(operator);
            }
        }
    }
    out
}

/// The tokens inside the first pair of parentheses, and those after it.
fn parenthesised(tokens: &[String]) -> Result<(&[String], &[String]), Unreadable> {
    let start = tokens.iter().position(|t| t == "(").ok_or(Unreadable)?;
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok((&tokens[start + 1..at], &tokens[at + 1..]));
        }
    }
    Err(Unreadable)
}

fn split_at_commas(tokens: &[String]) -> Vec<&[String]> {
    let mut depth = 0_usize;
    tokens
        .split(|token| {
            match token.as_str() {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && token == ","
        })
        .collect()
}

/// A list of names in parentheses, joined by spaces.
fn list(tokens: &[String]) -> Result<String, Unreadable> {
    let (inside, _) = parenthesised(tokens)?;
    Ok(expression(inside).replace(" , ", " "))
}

/// An expression without its parentheses, which engines add at will.
fn expression(tokens: &[String]) -> String {
    let kept: Vec<&str> = tokens
        .iter()
        .map(String::as_str)
        .filter(|token| !matches!(*token, "(" | ")"))
        .collect();
    kept.join(" ")
}

fn table(table_name: &str, rest: &[String]) -> Result<Table, Unreadable> {
    let (body, _storage) = parenthesised(rest)?;
    let mut table = Table::default();
    for item in split_at_commas(body) {
        let mut words = Reader::new(item);
        let mut name = words
            .take("constraint")
            .then(|| words.next().unwrap_or_default().to_owned());
        if words.take("primary") {
            table.parts.insert("primary key".to_owned(), list(words.rest())?);
        } else if words.take("check") {
            let (inside, _) = parenthesised(words.rest())?;
            let name = name.ok_or(Unreadable)?;
            table.parts.insert(name, format!("check {}", expression(inside)));
        } else if words.take("foreign") {
            table.parts.insert(name.ok_or(Unreadable)?, foreign_key(words.rest())?);
        } else if let Some(kind) = key_kind(&mut words) {
            if name.is_none() {
                name = words.next().map(str::to_owned);
            }
            let (inside, options) = parenthesised(words.rest())?;
            let columns = expression(inside).replace(" , ", " ");
            let parser = parser_of(options);
            table
                .parts
                .insert(name.ok_or(Unreadable)?, format!("{kind} {columns}{parser}"));
        } else {
            let column = words.next().ok_or(Unreadable)?.to_owned();
            let (definition, is_key) = column_definition(words.rest())?;
            if is_key {
                table.parts.insert("primary key".to_owned(), column.clone());
            }
            table.columns.insert(column, definition);
        }
    }
    if table.columns.is_empty() || table_name.is_empty() {
        return Err(Unreadable);
    }
    Ok(table)
}

fn key_kind(words: &mut Reader<'_>) -> Option<&'static str> {
    if words.take("unique") {
        words.take("key");
        Some("unique")
    } else if words.take("fulltext") {
        words.take("key");
        Some("fulltext")
    } else {
        words.take("key").then_some("index")
    }
}

fn parser_of(options: &[String]) -> String {
    let at = options.iter().position(|token| token == "parser");
    at.and_then(|at| options.get(at + 1))
        .map_or_else(String::new, |parser| format!(" parser {parser}"))
}

fn foreign_key(tokens: &[String]) -> Result<String, Unreadable> {
    let (columns, rest) = parenthesised(tokens)?;
    let open = rest.iter().position(|t| t == "(").ok_or(Unreadable)?;
    // OceanBase qualifies the table with the schema's name.
    let table = open.checked_sub(1).and_then(|at| rest.get(at)).ok_or(Unreadable)?;
    let (referred, _) = parenthesised(rest)?;
    Ok(format!(
        "foreign key {} references {table} {}",
        expression(columns).replace(" , ", " "),
        expression(referred).replace(" , ", " ")
    ))
}

/// The canonical definition of a column, and whether it is the primary key by itself.
fn column_definition(tokens: &[String]) -> Result<(String, bool), Unreadable> {
    let mut words = Reader::new(tokens);
    let mut definition = words.next().ok_or(Unreadable)?.to_owned();
    if words.peek() == Some("(") {
        let (width, rest) = parenthesised(words.rest())?;
        // The width of a number is how many digits a client may show, which nobody asks for.
        if !matches!(definition.as_str(), "bigint" | "int" | "tinyint") {
            definition = format!("{definition}({})", expression(width));
        }
        words = Reader::new(rest);
    }
    let mut key = false;
    while let Some(word) = words.next() {
        match word {
            "not" if words.take("null") => definition.push_str(" not null"),
            "default" => {
                let value = words.next().ok_or(Unreadable)?.trim_matches('\'');
                if value != "null" {
                    definition = format!("{definition} default {value}");
                }
            }
            "generated" => {
                let (inside, rest) = parenthesised(words.rest())?;
                definition = format!("{definition} generated {}", expression(inside));
                words = Reader::new(rest);
            }
            "collate" => {
                let collation = words.next().ok_or(Unreadable)?;
                definition = format!("{definition} collate {collation}");
            }
            "auto_increment" | "autoincrement" => definition.push_str(" auto"),
            "primary" => key = true,
            "references" | "check" | "unique" => return Err(Unreadable),
            _ => {}
        }
    }
    Ok((definition, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Catalog {
        let mut catalog = Catalog::default();
        catalog.apply(sql).expect("readable");
        catalog
    }

    #[test]
    fn what_was_written_and_what_oceanbase_shows_of_it_are_the_same() {
        let written = read(
            "CREATE TABLE pc_t (
  a VARBINARY(16) NOT NULL,
  n BIGINT NOT NULL DEFAULT 0,
  flag TINYINT(1) GENERATED ALWAYS AS (n > 1) STORED,
  word MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  PRIMARY KEY (a),
  UNIQUE KEY uq_t (n, a),
  FULLTEXT KEY ft_t (word) WITH PARSER SPACE,
  CONSTRAINT ck_t CHECK (n >= 0 AND (a IN ('x', 'Y') OR n = 2)),
  CONSTRAINT fk_t FOREIGN KEY (a) REFERENCES pc_u (b) ON DELETE RESTRICT
)",
        );
        let shown = read(
            "CREATE TABLE `pc_t` (
  `a` varbinary(16) NOT NULL,
  `n` bigint(20) NOT NULL DEFAULT '0',
  `flag` tinyint(1) GENERATED ALWAYS AS ((`n` > 1)) STORED,
  `word` mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  PRIMARY KEY (`a`),
  UNIQUE KEY `uq_t` (`n`, `a`) BLOCK_SIZE 16384 LOCAL,
  CONSTRAINT `fk_t` FOREIGN KEY (`a`) REFERENCES `schema`.`pc_u`(`b`) ON UPDATE RESTRICT ON DELETE RESTRICT ,
  FULLTEXT KEY `ft_t` (`word`) WITH PARSER space PARSER_PROPERTIES=(min_token_size=3,max_token_size=84) BLOCK_SIZE 16384,
  CONSTRAINT `ck_t` CHECK (((`n` >= 0) and ((`a` in ('x','Y')) or (`n` = 2))))
) ORGANIZATION INDEX AUTO_INCREMENT = 5 DEFAULT CHARSET = utf8mb4",
        );
        assert_eq!(written, shown);
        assert_eq!(written.tables["pc_t"].columns["n"], "bigint not null default 0");
        assert_eq!(written.tables["pc_t"].parts["ft_t"], "fulltext word parser space");
    }

    #[test]
    fn a_value_in_a_check_keeps_its_case_and_a_name_does_not() {
        let check = |value: &str| read(&format!("CREATE TABLE t (a TEXT, CONSTRAINT ck CHECK (A = '{value}'))"));
        assert_ne!(check("X"), check("x"));
        assert_eq!(check("x").tables["t"].parts["ck"], "check a = 'x'");
    }

    #[test]
    fn an_index_belongs_to_its_table_and_a_trigger_stands_by_itself() {
        let mut catalog = read("CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, a TEXT NULL) STRICT");
        let index = catalog.apply("CREATE UNIQUE INDEX ix ON t (a)").expect("readable");
        assert_eq!(catalog.tables["t"].parts["ix"], "unique a");
        assert_eq!(catalog.tables["t"].parts["primary key"], "id");
        let trigger = catalog
            .apply("CREATE TRIGGER tr AFTER DELETE ON t BEGIN SELECT 1; END")
            .expect("readable");
        assert!(catalog.holds(&index) && catalog.holds(&trigger));
        assert!(catalog.holds_as(&index, &catalog.clone()));
        assert!(!catalog.holds(&Object::Other("other".to_owned())));
    }

    #[test]
    fn other_statements_are_refused() {
        for sql in [
            "",
            "DROP TABLE t",
            "CREATE TABLE t",
            "CREATE TABLE t (",
            "CREATE INDEX i ON missing (a)",
        ] {
            assert_eq!(Catalog::default().apply(sql), Err(Unreadable), "{sql}");
        }
    }
}
