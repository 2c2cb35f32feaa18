//! Search finds what active entries of the one scope state, in any script.

use powercontext::families::memory::edit::edit;
use powercontext::families::memory::read::{self, Hit, Ranking};
use powercontext::store::Db;
use powercontext_core::ids::ScopeId;
use powercontext_core::memory::{Edit, EntryKind, EntryText, MemoryCitation};
use powercontext_tests::db::TestDb;

use super::{know, revision, stating};

powercontext_tests::on_both_engines! {
    words_of_every_script_are_found,
    text_is_found_however_its_accents_were_typed,
    scopes_that_differ_in_one_byte_find_only_their_own,
    a_score_is_the_reciprocal_of_sixty_plus_the_rank,
    only_what_is_current_and_active_is_found,
    what_the_engines_take_for_syntax_is_text,
    a_scope_without_memory_finds_nothing,
    no_more_hits_than_asked_for,
}

async fn search(db: &Db, scope: &ScopeId, query: &str) -> anyhow::Result<Vec<Hit>> {
    Ok(read::search(db, scope, query, 10).await?.hits)
}

async fn texts(db: &Db, scope: &ScopeId, query: &str) -> anyhow::Result<Vec<String>> {
    Ok(search(db, scope, query)
        .await?
        .into_iter()
        .map(|hit| hit.text)
        .collect())
}

async fn words_of_every_script_are_found(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let known = [
        "Deploys run on Friday at 17:30",
        "会議は毎週金曜日に決めました",
        "用户偏好深色主题",
        "서울에서 만나요",
        "Привет, Мир",
        "max_retries is 5",
        "the a of",
        "naïve café",
    ];
    know(db, &scope, &known).await?;
    for (query, expected) in [
        ("friday", known[0]),
        ("17", known[0]),
        ("金曜日", known[1]),
        ("曜", known[1]),
        ("深色", known[2]),
        ("서울", known[3]),
        ("МИР", known[4]),
        ("max_retries", known[5]),
        ("5", known[5]),
        ("the", known[6]),
        ("CAFÉ", known[7]),
    ] {
        assert_eq!(texts(db, &scope, query).await?, [expected], "{query}");
    }
    for nothing in ["fri", "cafe", "東京", "", " ", "…"] {
        assert_eq!(texts(db, &scope, nothing).await?, Vec::<String>::new(), "{nothing:?}");
    }
    Ok(())
}

async fn text_is_found_however_its_accents_were_typed(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    know(db, &scope, &["cafe\u{301} noir"]).await?;
    for query in ["caf\u{e9}", "cafe\u{301}"] {
        assert_eq!(texts(db, &scope, query).await?, ["caf\u{e9} noir"]);
    }
    Ok(())
}

async fn scopes_that_differ_in_one_byte_find_only_their_own(db: TestDb) -> anyhow::Result<()> {
    let names = ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"];
    for (n, name) in names.iter().enumerate() {
        know(&db.db, &db.scope(name)?, &[&format!("the secret word is number{n}")]).await?;
    }
    for (n, name) in names.iter().enumerate() {
        let scope = db.scope(name)?;
        let own = format!("the secret word is number{n}");
        assert_eq!(
            texts(&db.db, &scope, "secret word").await?,
            std::slice::from_ref(&own),
            "{name:?}"
        );
        for other in 0..names.len() {
            let found = texts(&db.db, &scope, &format!("number{other}")).await?;
            assert_eq!(
                found,
                if other == n { vec![own.clone()] } else { Vec::new() },
                "{name:?} {other}"
            );
        }
        assert_eq!(read::entries(&db.db, &scope, true).await?.entries.len(), 1);
    }
    Ok(())
}

async fn a_score_is_the_reciprocal_of_sixty_plus_the_rank(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    know(db, &scope, &["alpha beta gamma", "alpha", "delta"]).await?;
    let only = search(db, &scope, "delta").await?;
    assert_eq!(only.len(), 1);
    assert!((only[0].score - 1.0 / 61.0).abs() < 1e-12, "{}", only[0].score);
    assert_eq!(only[0].matched_by, [Ranking::Fts]);
    let entry = stating(db, &scope, "delta").await?;
    assert_eq!(only[0].citation, MemoryCitation::of(revision(1)?, &entry));

    let both = search(db, &scope, "alpha beta").await?;
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].text, "alpha beta gamma", "two words of the query beat one");
    assert!((both[1].score - 1.0 / 62.0).abs() < 1e-12, "{}", both[1].score);
    Ok(())
}

async fn only_what_is_current_and_active_is_found(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    know(db, &scope, &["apples are red", "pears are green"]).await?;
    let apples = stating(db, &scope, "apples are red").await?;
    let revise = Edit::Revise {
        citation: MemoryCitation::of(revision(1)?, &apples),
        kind: EntryKind::parse("fact")?,
        text: EntryText::parse("plums are blue")?,
    };
    edit(db, &scope, revise, None).await?;
    assert_eq!(texts(db, &scope, "apples red").await?, Vec::<String>::new());
    let found = search(db, &scope, "plums").await?;
    assert_eq!(found[0].citation.memory_ref.revision, revision(2)?);

    let retire = Edit::Retire {
        citation: found[0].citation.clone(),
    };
    edit(db, &scope, retire, None).await?;
    assert_eq!(texts(db, &scope, "plums").await?, Vec::<String>::new());
    let pears = search(db, &scope, "are").await?;
    assert_eq!(pears.len(), 1);
    assert_eq!(
        pears[0].citation.memory_ref.revision,
        revision(3)?,
        "hits cite the current revision"
    );
    Ok(())
}

async fn what_the_engines_take_for_syntax_is_text(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    know(db, &scope, &["either NOT or AND near"]).await?;
    for query in [
        "NOT",
        "\"or\"",
        "and*",
        "(near",
        "+either -or",
        "' OR 1=1 --",
        "near:near",
        "^either",
    ] {
        assert_eq!(texts(db, &scope, query).await?.len(), 1, "{query}");
    }
    for query in ["\"", "*", "-", "'; DROP TABLE pc_sources; --nothing", "\0"] {
        assert_eq!(texts(db, &scope, query).await?.len(), 0, "{query}");
    }
    Ok(())
}

async fn a_scope_without_memory_finds_nothing(db: TestDb) -> anyhow::Result<()> {
    let found = read::search(&db.db, &db.scope("nobody")?, "anything", 10).await?;
    assert_eq!((found.revision, found.hits.len()), (None, 0));
    Ok(())
}

async fn no_more_hits_than_asked_for(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let known: Vec<_> = (0..51).map(|n| format!("fruit {n}")).collect();
    know(db, &scope, &known.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for limit in [1, 10, 50] {
        let hits = read::search(db, &scope, "fruit", limit).await?.hits;
        assert_eq!(hits.len(), limit as usize);
    }
    Ok(())
}
