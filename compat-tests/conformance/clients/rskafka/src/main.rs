//! rskafka behind the driver of PROTOCOL.md: reads requests, calls the client, answers.

mod admin;
mod consumer;
mod producer;
mod request;

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::sync::Arc;

use rskafka::client::error::{Error, ProtocolError};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use admin::Admin;
use consumer::Consumer;
use producer::Producer;
use request::Request;

const CLIENT_ERROR: i16 = -1;

/// Kafka's error code, or `CLIENT_ERROR`, and the client's own words.
pub struct Failure {
    pub code: i16,
    message: String,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self { code: CLIENT_ERROR, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::ServerError { protocol_error, .. } => code_of(*protocol_error),
            _ => CLIENT_ERROR,
        };
        Self { code, message: error.to_string() }
    }
}

/// rskafka makes errors of codes, and tells no code of an error.
fn code_of(error: ProtocolError) -> i16 {
    match error {
        ProtocolError::Unknown(code) => code,
        named => (-1..=105).find(|code| ProtocolError::new(*code) == Some(named)).unwrap_or(CLIENT_ERROR),
    }
}

pub type Answer = Result<Value, Failure>;

enum Object {
    Producer(Producer),
    Consumer(Consumer),
    Admin(Admin),
}

impl Object {
    async fn open(request: &Request) -> Result<Self, Failure> {
        Ok(match request.op() {
            "open_producer" => Self::Producer(Producer::open(request).await?),
            "open_consumer" => Self::Consumer(Consumer::open(request).await?),
            _ => Self::Admin(Admin::open(request).await?),
        })
    }

    async fn handle(&mut self, request: &Request) -> Answer {
        match self {
            Self::Producer(producer) => producer.handle(request).await,
            Self::Consumer(consumer) => consumer.handle(request).await,
            Self::Admin(admin) => admin.handle(request).await,
        }
    }
}

/// The version in the lock file that this program was built with.
fn client_version() -> &'static str {
    include_str!("../Cargo.lock")
        .split_once("name = \"rskafka\"\nversion = \"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or("unknown", |(version, _)| version)
}

type Objects = Arc<Mutex<HashMap<u64, Arc<Mutex<Object>>>>>;

async fn handle(request: &Request, objects: &Objects) -> Answer {
    match request.op() {
        "hello" => return Ok(json!({"client": "rskafka", "version": client_version()})),
        "open_producer" | "open_consumer" | "open_admin" => {
            // The id of the request that opened an object is its handle.
            let opened = Object::open(request).await?;
            objects.lock().await.insert(request.id(), Arc::new(Mutex::new(opened)));
            return Ok(json!(request.id()));
        }
        "close" => {
            objects.lock().await.remove(&request.on());
            return Ok(Value::Null);
        }
        _ => {}
    }
    let found = objects.lock().await.get(&request.on()).cloned();
    let object = found.ok_or_else(|| Failure::new(format!("there is no object {}", request.on())))?;
    object.lock().await.handle(request).await
}

async fn answer(request: Request, objects: Objects) {
    let reply = match handle(&request, &objects).await {
        Ok(result) => json!({"id": request.id(), "result": result}),
        Err(Failure { code, message }) => json!({"id": request.id(), "error": {"code": code, "message": message}}),
    };
    let mut replies = stdout().lock();
    writeln!(replies, "{reply}").and_then(|()| replies.flush()).expect("stdout is read");
}

#[tokio::main]
async fn main() {
    let objects = Objects::default();
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || stdin().lock().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    while let Some(line) = lines.recv().await {
        tokio::spawn(answer(Request::parse(&line), Arc::clone(&objects)));
    }
    // What still runs is of no use to anybody.
    std::process::exit(0);
}
