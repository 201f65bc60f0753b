//! A producer: a client for each partition that is written to.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use rskafka::chrono::{DateTime, Utc};
use rskafka::client::Client;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::record::Record;
use serde_json::{Value, json};

use crate::request::{Request, open_client, partition_client};
use crate::{Answer, Failure};

type Partition = (String, i32);

pub struct Producer {
    client: Client,
    compression: Compression,
    unknown: UnknownTopicHandling,
    partitions: HashMap<Partition, PartitionClient>,
}

impl Producer {
    pub async fn open(request: &Request) -> Result<Self, Failure> {
        Ok(Self {
            client: open_client(request).await?,
            compression: match request.text("codec") {
                Some("gzip") => Compression::Gzip,
                Some("snappy") => Compression::Snappy,
                Some("lz4") => Compression::Lz4,
                Some("zstd") => Compression::Zstd,
                _ => Compression::NoCompression,
            },
            unknown: match request.patience() {
                Some(_) => UnknownTopicHandling::Error,
                None => UnknownTopicHandling::Retry,
            },
            partitions: HashMap::new(),
        })
    }

    pub async fn handle(&mut self, request: &Request) -> Answer {
        match request.op() {
            "produce" => Ok(self.produce(&request.parts("records")).await),
            unknown => Err(Failure::new(format!("unknown operation {unknown}"))),
        }
    }

    /// One batch for each partition.  rskafka leaves partitioning to its application: without a word it is partition 0.
    async fn produce(&mut self, sent: &[Request]) -> Value {
        let mut batches: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
        for (number, record) in sent.iter().enumerate() {
            batches.entry(record.partition()).or_default().push(number);
        }
        let mut deliveries = vec![Value::Null; sent.len()];
        for (partition, numbers) in batches {
            let records = numbers.iter().map(|number| record_of(&sent[*number])).collect();
            let written = self.write(&partition, records).await;
            for (position, number) in numbers.into_iter().enumerate() {
                deliveries[number] = match &written {
                    Ok(offsets) => json!({"error": 0, "partition": partition.1, "offset": offsets[position]}),
                    Err(failure) => json!({"error": failure.code, "partition": -1, "offset": -1}),
                };
            }
        }
        json!(deliveries)
    }

    async fn write(&mut self, partition: &Partition, records: Vec<Record>) -> Result<Vec<i64>, Failure> {
        if !self.partitions.contains_key(partition) {
            let opened = partition_client(&self.client, partition, self.unknown).await?;
            self.partitions.insert(partition.clone(), opened);
        }
        Ok(self.partitions[partition].produce(records, self.compression).await?)
    }
}

fn record_of(sent: &Request) -> Record {
    let headers = sent.parts("headers").into_iter().map(|header| {
        let name = header.text("key").unwrap_or_default().to_owned();
        (name, header.bytes("value").unwrap_or_default())
    });
    let timestamp = sent.number("timestamp_ms").and_then(DateTime::from_timestamp_millis);
    Record {
        key: sent.bytes("key"),
        value: sent.bytes("value"),
        headers: headers.collect(),
        timestamp: timestamp.unwrap_or_else(now),
    }
}

fn now() -> DateTime<Utc> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    DateTime::UNIX_EPOCH + since_epoch
}
