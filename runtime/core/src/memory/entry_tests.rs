use super::*;
use crate::ids::{SourceId, SourceType};

fn source(id: &str) -> SourceRef {
    SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(id).expect("valid"),
    }
}

fn content(text: &str, sources: &[&str]) -> EntryContent {
    EntryContent::new(
        EntryKind::parse("fact").expect("valid"),
        EntryText::parse(text).expect("valid"),
        sources.iter().map(|id| source(id)).collect(),
        Vec::new(),
    )
    .expect("few references")
}

fn entry_id() -> EntryId {
    EntryId::parse("mem_ent_1").expect("valid")
}

fn version_id(n: u32) -> EntryVersionId {
    EntryVersionId::parse(format!("mem_ver_{n}")).expect("valid")
}

#[test]
fn text_holds_at_most_8192_bytes_counted_after_normalisation() {
    for (bytes, accepted) in [(8191, true), (8192, true), (8193, false)] {
        assert_eq!(EntryText::parse("a".repeat(bytes)).is_ok(), accepted, "{bytes}");
    }
    // Decomposed: 3 bytes a letter; composed: 2.
    let decomposed = "e\u{301}".repeat(4096);
    assert_eq!(
        EntryText::parse(decomposed).expect("8192 composed").as_str().len(),
        8192
    );
    assert_eq!(
        EntryText::parse("e\u{301}".repeat(4097)),
        Err(EntryFault::TextTooLong { bytes_max: 8192 })
    );
    assert!(EntryText::parse("記".repeat(2730)).is_ok());
    assert!(EntryText::parse("記".repeat(2731)).is_err());
    assert!(EntryText::parse("a".repeat(1 << 20)).is_err());
}

#[test]
fn composed_and_decomposed_text_is_one_text_with_one_hash() {
    let composed = content("caf\u{e9}", &["s1"]);
    let decomposed = content("cafe\u{301}", &["s1"]);
    assert_eq!(composed, decomposed);
    assert_eq!(composed.hash(), decomposed.hash());
}

#[test]
fn blank_text_and_nul_are_refused() {
    for text in ["", " ", "\n\t", "\u{3000}"] {
        assert_eq!(EntryText::parse(text), Err(EntryFault::TextBlank), "{text:?}");
    }
    assert_eq!(EntryText::parse("a\0b"), Err(EntryFault::TextNul));
    assert!(EntryText::parse("two\nlines\t!").is_ok());
}

#[test]
fn a_kind_holds_at_most_128_characters_and_is_free() {
    for (chars, accepted) in [(0, false), (1, true), (127, true), (128, true), (129, false)] {
        assert_eq!(EntryKind::parse("種".repeat(chars)).is_ok(), accepted, "{chars}");
    }
    assert!(!EntryKind::parse("house rule").expect("free text").is_extracted());
    for kind in EntryKind::EXTRACTED {
        assert!(EntryKind::parse(kind).expect("valid").is_extracted());
    }
}

#[test]
fn a_reason_holds_at_most_512_characters_and_may_be_empty() {
    for (chars, accepted) in [(0, true), (511, true), (512, true), (513, false)] {
        assert_eq!(Reason::parse("é".repeat(chars)).is_ok(), accepted, "{chars}");
    }
}

#[test]
fn the_hash_is_pinned_to_its_documented_input() {
    let input = "powercontext.memory.entry.v1\0{\"artifact_refs\":[],\"kind\":\"fact\",\"source_refs\":[{\"name\":\"content\",\
                 \"source_id\":\"a\"},{\"name\":\"content\",\"source_id\":\"b\"}],\"text\":\"Zoë\"}";
    assert_eq!(
        content("Zoë", &["b", "a", "b"]).hash().as_str(),
        sha256_hex(input.as_bytes())
    );
}

#[test]
fn the_hash_does_not_depend_on_the_order_of_references_but_on_everything_else() {
    let base = content("one", &["a", "b"]);
    assert_eq!(base.hash(), content("one", &["b", "a"]).hash());
    assert_ne!(base.hash(), content("two", &["a", "b"]).hash());
    assert_ne!(base.hash(), content("one", &["a"]).hash());
}

#[test]
fn an_entry_cites_at_most_128_sources() {
    let names: Vec<String> = (0..129).map(|n| format!("s{n}")).collect();
    let make = |count: usize| {
        EntryContent::new(
            EntryKind::parse("fact").expect("valid"),
            EntryText::parse("x").expect("valid"),
            names.iter().take(count).map(|id| source(id)).collect(),
            Vec::new(),
        )
    };
    assert!(make(128).is_ok());
    assert_eq!(make(129), Err(EntryFault::TooManyRefs { refs_max: 128 }));
}

#[test]
fn revising_counts_up_and_retiring_keeps_the_number() {
    let first = EntryVersion::first(entry_id(), version_id(1), content("one", &["a"]));
    assert_eq!(
        (first.version, first.previous.clone(), first.state),
        (1, None, EntryState::Active)
    );
    let second = first.revised(version_id(2), content("two", &["b"]));
    assert_eq!((second.version, second.previous.clone()), (2, Some(version_id(1))));
    assert_eq!(second.source_refs, [source("b")]);
    let retired = second.retired(version_id(3));
    assert_eq!((retired.version, retired.previous.clone()), (2, Some(version_id(2))));
    assert_eq!(
        (retired.state, &retired.content_hash),
        (EntryState::Inactive, &second.content_hash)
    );
    assert!([first, second, retired].iter().all(EntryVersion::is_intact));
}

#[test]
fn a_version_whose_content_was_changed_is_not_intact() {
    let mut version = EntryVersion::first(entry_id(), version_id(1), content("one", &["a"]));
    version.text = EntryText::parse("other").expect("valid");
    assert!(!version.is_intact());
}

#[test]
fn a_version_crosses_a_pipe_unchanged_and_checked() {
    let version = EntryVersion::first(entry_id(), version_id(1), content("日本語", &["a"]));
    let text = serde_json::to_string(&version).expect("plain data");
    assert_eq!(serde_json::from_str::<EntryVersion>(&text).expect("same form"), version);
    let blank = text.replace("日本語", " ");
    assert!(serde_json::from_str::<EntryVersion>(&blank).is_err());
}
