use super::*;

struct Served {
    base: String,
    stop: CancellationToken,
    client: reqwest::Client,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn served(options: ModelOptions) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let stop = CancellationToken::new();
    rt::spawn(serve(listener, options, stop.clone()));
    Served {
        base,
        stop,
        client: reqwest::Client::builder().no_proxy().build().expect("plain client"),
    }
}

impl Served {
    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.base)).json(body);
        let response = request.send().await.expect("up");
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    async fn counts(&self) -> Value {
        let request = self.client.get(format!("{}/requests", self.base));
        request.send().await.expect("up").json().await.expect("JSON")
    }
}

fn extraction(content: &str) -> Value {
    let input = json!({
        "evidence": [{"evidence_id": "source:0", "evidence_type": "source", "content": {"content": content}}],
        "current_entries": [],
    });
    json!({"model": "dev", "messages": [
        {"role": "system", "content": "Instruction set powercontext.memory.extract.conversation.v1\n\nExtract."},
        {"role": "user", "content": input.to_string()},
    ]})
}

#[tokio::test]
async fn it_answers_extraction_by_instruction_version_and_always_the_same() {
    let model = served(ModelOptions::default()).await;
    let body = extraction("We decided to use Rust.");
    let (status, first) = model.post("/v1/chat/completions", &body).await;
    assert_eq!(status, 200);
    let text = first["choices"][0]["message"]["content"].as_str().expect("text");
    let answer: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(answer["candidates"][0]["evidence_ids"], json!(["source:0"]));
    assert_eq!(model.post("/v1/chat/completions", &body).await, (200, first));

    let other = json!({"messages": [{"role": "system", "content": "Sing."}, {"role": "user", "content": "la"}]});
    let (_, other) = model.post("/v1/chat/completions", &other).await;
    assert_eq!(other["choices"][0]["message"]["content"], "{}");
}

#[tokio::test]
async fn it_serves_vectors() {
    let model = served(ModelOptions::default()).await;
    let (status, response) = model
        .post("/v1/embeddings", &json!({"model": "e", "input": ["a", "b"]}))
        .await;
    assert_eq!((status, response["data"].as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(model.post("/v1/embeddings", &json!({"input": 3})).await.0, 400);
    assert_eq!(model.counts().await["embeddings"], 2);
}

#[tokio::test]
async fn a_request_counts_as_in_flight_until_its_client_leaves() {
    let model = served(ModelOptions {
        delay: Duration::from_hours(1),
        ..ModelOptions::default()
    })
    .await;
    let request = model.client.post(format!("{}/v1/chat/completions", model.base));
    let waiting = rt::spawn(request.json(&extraction("x")).send());
    let in_flight = async |wanted: u64| {
        while model.counts().await["in_flight"] != wanted {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(10);
    rt::within(limit, in_flight(1)).await.expect("the request arrives");
    waiting.abort();
    rt::within(limit, in_flight(0)).await.expect("the request is dropped");
    assert_eq!(model.counts().await["chat"], 1);
}

#[tokio::test]
async fn it_ends_at_once_with_requests_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let stop = CancellationToken::new();
    let options = ModelOptions {
        delay: Duration::from_hours(1),
        ..ModelOptions::default()
    };
    let server = rt::spawn(serve(listener, options, stop.clone()));
    let client = reqwest::Client::builder().no_proxy().build().expect("plain client");
    let open = rt::spawn(
        client
            .post(format!("{base}/v1/chat/completions"))
            .json(&extraction("x"))
            .send(),
    );
    stop.cancel();
    let ended = rt::within(Duration::from_secs(10), server).await;
    ended.expect("it ends").expect("without panic");
    assert!(open.await.expect("no panic").is_err());
}

#[test]
fn ways_to_fail_read_back_from_their_names() {
    for fail in Fail::ALL {
        assert_eq!(fail.as_str().parse(), Ok(fail));
    }
    assert_eq!("404".parse::<Fail>(), Err(UnknownFail));
}

#[test]
fn a_delay_is_a_number_of_seconds_within_a_day() {
    assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
    assert_eq!(parse_seconds("86400"), Ok(Duration::from_hours(24)));
    for wrong in ["", "-1", "86401", "inf", "NaN", "1s"] {
        assert!(parse_seconds(wrong).is_err(), "{wrong}");
    }
}
