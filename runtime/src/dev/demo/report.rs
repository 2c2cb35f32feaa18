//! What the demonstration prints.

use std::net::SocketAddr;

use super::DemoError;
use super::client::{Client, Entry, Operation};

/// Entries shown of each scope.
const ENTRIES_SHOWN: usize = 8;
/// Longest text shown, in characters.
const TEXT_SHOWN: usize = 96;
/// Hits shown of a search.
const HITS_SHOWN: u32 = 3;

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(TEXT_SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

pub(super) fn operations(operations: &[Operation]) {
    println!("\nOperations");
    for operation in operations {
        let processed = operation
            .result
            .as_ref()
            .and_then(|result| result["processed_source_count"].as_u64());
        println!(
            "  {}  {:<9}  attempts {}  sources {:>3}  {}",
            operation.id,
            operation.status,
            operation.attempt_count,
            processed.map_or_else(|| "-".to_owned(), |n| n.to_string()),
            operation.scope_id
        );
    }
}

pub(super) fn entries(scope: &str, entries: &[Entry]) {
    println!("\nMemory of {scope}: {} entries", entries.len());
    for entry in entries.iter().take(ENTRIES_SHOWN) {
        let sources: Vec<&str> = entry
            .source_refs
            .iter()
            .map(|source| source.source_id.as_str())
            .collect();
        println!("  {:<12} {}  [{}]", entry.kind, short(&entry.text), sources.join(", "));
    }
    if entries.len() > ENTRIES_SHOWN {
        println!("  … and {} more", entries.len() - ENTRIES_SHOWN);
    }
}

/// Searches each scope for words that its own Memory holds.
pub(super) async fn search(client: &Client, scopes: &[&String]) -> Result<(), DemoError> {
    for scope in scopes {
        let Some(query) = client
            .entries(scope)
            .await?
            .first()
            .map(|entry| longest_word(&entry.text))
        else {
            continue;
        };
        let hits = client.search(scope, &query, HITS_SHOWN).await?;
        println!("\nSearch in {scope} for \"{query}\": {} hits", hits.len());
        for hit in hits {
            println!("  {:.4}  {}", hit.score, short(&hit.text));
        }
    }
    Ok(())
}

fn longest_word(text: &str) -> String {
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .map(|word| word.chars().take(12).collect::<String>());
    words.max_by_key(|word| word.chars().count()).unwrap_or_default()
}

pub(super) fn next_steps(server: SocketAddr, model: SocketAddr, keep: bool) {
    if keep {
        println!(
            "\nServer http://{server} and model http://{model} keep running until Ctrl-C. Try:\n\
             \n  curl -s http://{server}/health/ready\
             \n  curl -s http://{server}/v1/operations\
             \n  curl -s http://{server}/v1/memory/search -H 'Content-Type: application/json' \\\
             \n    -d '{{\"scope_id\":\"team-harbor\",\"query\":\"backups\"}}'"
        );
    } else {
        println!(
            "\nDone. Next:\
             \n  make run RUN_ARGS=--keep           keep this server running and try it with curl\
             \n  powercontext dev model --port 9100  the deterministic model alone\
             \n  powercontext server run --help      a server of your own; README.md shows both together"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("short"), "short");
        let long = "記".repeat(TEXT_SHOWN + 1);
        assert_eq!(short(&long).chars().count(), TEXT_SHOWN + 1);
        assert!(short(&long).ends_with('…'));
    }
}
