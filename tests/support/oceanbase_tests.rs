//! The helpers themselves, on the real server.

use powercontext_tests::oceanbase;

#[tokio::test]
async fn every_caller_of_one_process_gets_the_same_schema_and_fresh_gives_another() -> anyhow::Result<()> {
    let (one, two) = tokio::try_join!(oceanbase::url(), oceanbase::url())?;
    assert_eq!(one.url(), two.url());
    assert!(one.url().contains(one.schema()));
    assert_ne!(oceanbase::fresh().await?.schema(), one.schema());
    Ok(())
}

#[test]
fn the_server_is_there_as_a_program() -> anyhow::Result<()> {
    assert!(powercontext_tests::binary::server()?.is_file());
    Ok(())
}
