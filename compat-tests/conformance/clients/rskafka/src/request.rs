//! What a request asks for, and what the client is opened with.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rskafka::BackoffConfig;
use rskafka::chrono::DateTime;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
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

    /// Who the client is, where the broker asks.
    fn security(&self) -> Option<Self> {
        self.0["security"].is_object().then(|| Self(self.0["security"].clone()))
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
    let mut builder = ClientBuilder::new(bootstrap).backoff_config(backoff);
    if let Some(security) = request.security() {
        builder = builder.tls_config(Arc::new(tls(&security)?));
        if let (Some(user), Some(password)) = (security.text("user"), security.text("password")) {
            let credentials = Credentials::new(user.to_owned(), password.to_owned());
            builder = builder.sasl_config(SaslConfig::ScramSha512(credentials));
        }
    }
    Ok(builder.build().await?)
}

/// What the client trusts, and the certificate that it shows if it has one.
fn tls(security: &Request) -> Result<ClientConfig, Failure> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(certificates_in(security.text("ca").unwrap_or_default())?);
    let config = ClientConfig::builder().with_root_certificates(trusted);
    let Some(own) = security.text("certificate") else {
        return Ok(config.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_file(own).map_err(|error| Failure::new(error.to_string()))?;
    config.with_client_auth_cert(certificates_in(own)?, key).map_err(|error| Failure::new(error.to_string()))
}

fn certificates_in(file: impl AsRef<Path>) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    found.map_err(|error| Failure::new(error.to_string()))
}

/// rskafka's client of a partition, which waits for the partition to appear or not.
pub async fn partition_client(
    client: &Client,
    (topic, index): &(String, i32),
    unknown: UnknownTopicHandling,
) -> Result<PartitionClient, Failure> {
    Ok(client.partition_client(topic, *index, unknown).await?)
}
