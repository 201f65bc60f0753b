//! An admin client.

use std::collections::BTreeMap;

use rskafka::client::Client;
use rskafka::client::controller::ControllerClient;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use serde_json::{Value, json};

use crate::request::{Request, open_client, partition_client};
use crate::{Answer, Failure};

const TIMEOUT_MS: i32 = 30_000;

pub struct Admin {
    client: Client,
    controller: ControllerClient,
}

impl Admin {
    pub async fn open(request: &Request) -> Result<Self, Failure> {
        let client = open_client(request).await?;
        let controller = client.controller_client()?;
        Ok(Self { client, controller })
    }

    pub async fn handle(&self, request: &Request) -> Answer {
        let topic = request.text("topic").unwrap_or_default();
        match request.op() {
            "create_topic" => {
                let count = request.number("count").unwrap_or(1) as i32;
                self.controller.create_topic(topic, count, 1, TIMEOUT_MS).await?;
                Ok(Value::Null)
            }
            "delete_topic" => {
                self.controller.delete_topic(topic, TIMEOUT_MS).await?;
                Ok(Value::Null)
            }
            "topics" => {
                let listed = self.client.list_topics().await?;
                let counts = listed.into_iter().map(|topic| (topic.name, topic.partitions.len()));
                Ok(json!(counts.collect::<BTreeMap<_, _>>()))
            }
            "delete_records" => {
                let partition = self.partition(request).await?;
                partition.delete_records(request.offset(), TIMEOUT_MS).await?;
                // rskafka keeps the low watermark of the answer to itself.
                Ok(json!(partition.get_offset(OffsetAt::Earliest).await?))
            }
            "list_offset" => {
                let wanted = match request.text("spec") {
                    Some("earliest") => OffsetAt::Earliest,
                    Some("latest") => OffsetAt::Latest,
                    _ => request.time(),
                };
                Ok(json!(self.partition(request).await?.get_offset(wanted).await?))
            }
            unknown => Err(Failure::new(format!("unknown operation {unknown}"))),
        }
    }

    async fn partition(&self, request: &Request) -> Result<PartitionClient, Failure> {
        partition_client(&self.client, &request.partition(), UnknownTopicHandling::Retry).await
    }
}
