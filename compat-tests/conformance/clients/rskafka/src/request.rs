//! What a request asks for, and what the client is opened with.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rskafka::BackoffConfig;
use rskafka::chrono::DateTime;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use serde_json::Value;

use crate::Failure;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Request(Value);

impl Request {
    /// The fields of a request, or of a part of one.
    pub fn parse(line: &str) -> Self {
        Self(serde_json::from_str(line).expect("a request is a JSON object"))
    }

    pub fn id(&self) -> u64 {
        self.0["id"].as_u64().expect("a request has an id")
    }

    pub fn on(&self) -> u64 {
        self.0["on"].as_u64().unwrap_or_default()
    }

    pub fn op(&self) -> &str {
        self.text("op").unwrap_or_default()
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.0[field].as_str()
    }

    pub fn number(&self, field: &str) -> Option<i64> {
        self.0[field].as_i64()
    }

    pub fn bytes(&self, field: &str) -> Option<Vec<u8>> {
        self.text(field).map(|encoded| BASE64.decode(encoded).expect("bytes are base64"))
    }

    pub fn parts(&self, field: &str) -> Vec<Self> {
        self.0[field].as_array().map(|parts| parts.iter().cloned().map(Self).collect()).unwrap_or_default()
    }

    /// The topic and the partition's index.
    pub fn partition(&self) -> (String, i32) {
        (self.text("topic").unwrap_or_default().to_owned(), self.number("partition").unwrap_or_default() as i32)
    }

    pub fn offset(&self) -> i64 {
        self.number("offset").unwrap_or_default()
    }

    pub fn time(&self) -> OffsetAt {
        let timestamp_ms = self.number("timestamp_ms").unwrap_or_default();
        OffsetAt::Timestamp(DateTime::from_timestamp_millis(timestamp_ms).expect("a timestamp is in range"))
    }

    pub fn patience(&self) -> Option<Duration> {
        self.number("patience_ms").map(|ms| Duration::from_millis(ms as u64))
    }
}

pub fn encoded(value: Option<&[u8]>) -> Option<String> {
    value.map(|bytes| BASE64.encode(bytes))
}

pub async fn open_client(request: &Request) -> Result<Client, Failure> {
    let bootstrap = request.text("bootstrap").unwrap_or_default().split(',').map(str::to_owned).collect();
    let backoff = BackoffConfig {
        max_backoff: Duration::from_secs(1),
        deadline: Some(request.patience().unwrap_or(PATIENCE)),
        ..BackoffConfig::default()
    };
    Ok(ClientBuilder::new(bootstrap).backoff_config(backoff).build().await?)
}

/// rskafka's client of a partition, which waits for the partition to appear or not.
pub async fn partition_client(
    client: &Client,
    (topic, index): &(String, i32),
    unknown: UnknownTopicHandling,
) -> Result<PartitionClient, Failure> {
    Ok(client.partition_client(topic, *index, unknown).await?)
}
