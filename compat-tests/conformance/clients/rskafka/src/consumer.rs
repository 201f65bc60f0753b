//! A consumer of assigned partitions: a client and a position for each of them.

use std::cmp::min;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rskafka::client::Client;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::record::RecordAndOffset;
use serde_json::{Value, json};

use crate::request::{Request, encoded, open_client, partition_client};
use crate::{Answer, Failure};

const OFFSET_OUT_OF_RANGE: i16 = 1;
const FETCH_WAIT_MS: i64 = 500;
const FETCH_BYTES: i64 = 1 << 20;

struct Assigned {
    client: PartitionClient,
    position: i64,
    is_paused: bool,
}

pub struct Consumer {
    client: Client,
    reset: OffsetAt,
    fetch_wait: Duration,
    fetch_bytes: i32,
    assigned: BTreeMap<(String, i32), Assigned>,
}

impl Consumer {
    pub async fn open(request: &Request) -> Result<Self, Failure> {
        let fetch_wait_ms = request.number("fetch_wait_ms").unwrap_or(FETCH_WAIT_MS);
        Ok(Self {
            client: open_client(request).await?,
            reset: match request.text("offset_reset") {
                Some("latest") => OffsetAt::Latest,
                _ => OffsetAt::Earliest,
            },
            fetch_wait: Duration::from_millis(fetch_wait_ms as u64),
            fetch_bytes: request.number("partition_fetch_bytes").unwrap_or(FETCH_BYTES) as i32,
            assigned: BTreeMap::new(),
        })
    }

    pub async fn handle(&mut self, request: &Request) -> Answer {
        match request.op() {
            "assign" => self.assign(request).await,
            "assignment" => {
                Ok(self.assigned.keys().map(|(topic, index)| json!({"topic": topic, "partition": index})).collect())
            }
            "poll" => self.poll(request).await,
            "beginning_and_end" => {
                let client = self.any(request).await?;
                let beginning = client.get_offset(OffsetAt::Earliest).await?;
                Ok(json!([beginning, client.get_offset(OffsetAt::Latest).await?]))
            }
            "offset_for_time" => {
                let offset = self.any(request).await?.get_offset(request.time()).await?;
                Ok(if offset < 0 { Value::Null } else { json!(offset) })
            }
            _ => self.change(request).await,
        }
    }

    async fn assign(&mut self, request: &Request) -> Answer {
        for wanted in request.parts("partitions") {
            let client = self.any(&wanted).await?;
            let position = client.get_offset(self.reset).await?;
            self.assigned.insert(wanted.partition(), Assigned { client, position, is_paused: false });
        }
        Ok(Value::Null)
    }

    /// A client of a partition, be it assigned or not.
    async fn any(&self, request: &Request) -> Result<PartitionClient, Failure> {
        partition_client(&self.client, &request.partition(), UnknownTopicHandling::Retry).await
    }

    async fn change(&mut self, request: &Request) -> Answer {
        let found = self.assigned.get_mut(&request.partition());
        let partition = found.ok_or_else(|| Failure::new("the partition is not assigned"))?;
        match request.op() {
            "seek" => partition.position = request.offset(),
            "seek_to_beginning" => partition.position = partition.client.get_offset(OffsetAt::Earliest).await?,
            "seek_to_end" => partition.position = partition.client.get_offset(OffsetAt::Latest).await?,
            "position" => return Ok(json!(partition.position)),
            "pause" => partition.is_paused = true,
            "resume" => partition.is_paused = false,
            unknown => return Err(Failure::new(format!("unknown operation {unknown}"))),
        }
        Ok(Value::Null)
    }

    /// Ask one partition after the other, and wait at each, until one has records.
    async fn poll(&mut self, request: &Request) -> Answer {
        let timeout = Duration::from_millis(request.number("timeout_ms").unwrap_or_default() as u64);
        let deadline = Instant::now() + timeout;
        let flowing = self.assigned.values().filter(|partition| !partition.is_paused).count() as u32;
        let wait = min(timeout / flowing.max(1), self.fetch_wait);
        let mut records = Vec::new();
        while records.is_empty() && Instant::now() < deadline {
            if flowing == 0 {
                tokio::time::sleep(timeout).await;
            }
            for ((topic, index), partition) in self.assigned.iter_mut().filter(|(_, each)| !each.is_paused) {
                let wait_ms = if records.is_empty() { wait.as_millis() as i32 } else { 0 };
                let fetched = partition.fetch(self.fetch_bytes, wait_ms, self.reset).await?;
                records.extend(fetched.iter().map(|each| received(topic, *index, each)));
            }
        }
        Ok(json!({"records": records, "revocations": 0}))
    }
}

impl Assigned {
    async fn fetch(&mut self, bytes: i32, wait_ms: i32, reset: OffsetAt) -> Result<Vec<RecordAndOffset>, Failure> {
        let fetched = self.client.fetch_records(self.position, 1..bytes, wait_ms).await.map_err(Failure::from);
        let records = match fetched {
            Ok((records, _)) => records,
            // rskafka leaves resetting to its application.
            Err(failure) if failure.code == OFFSET_OUT_OF_RANGE => {
                self.position = self.client.get_offset(reset).await?;
                Vec::new()
            }
            Err(failure) => return Err(failure),
        };
        if let Some(last) = records.last() {
            self.position = last.offset + 1;
        }
        Ok(records)
    }
}

fn received(topic: &str, index: i32, found: &RecordAndOffset) -> Value {
    let record = &found.record;
    let headers = record.headers.iter().map(|(name, value)| json!({"key": name, "value": encoded(Some(value))}));
    json!({
        "topic": topic,
        "partition": index,
        "offset": found.offset,
        "key": encoded(record.key.as_deref()),
        "value": encoded(record.value.as_deref()),
        "headers": headers.collect::<Vec<_>>(),
        "timestamp_ms": record.timestamp.timestamp_millis(),
        "timestamp_type": null,
    })
}
