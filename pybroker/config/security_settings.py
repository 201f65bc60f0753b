"""Settings of security: TLS, SASL and its mechanisms, delegation tokens; rows of the table in ``broker_settings``.

Owns: those rows, and what is said of rows there holds of them.  Owns no documentation (``security_documentation``) and
no meaning (``security``).

Counterparts in Kafka: ``BrokerSecurityConfigs``, ``SslConfigs``, ``SaslConfigs``, ``DelegationTokenManagerConfigs``.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.bounds import ANY_LIST, NO_CLASS, POSITIVE
from pybroker.config.schema import (
    BOOLEAN,
    BROKER,
    CHECKED,
    CLASS,
    DOUBLE,
    FIXED,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    SHORT,
    STRING,
    TUNES,
    USED,
    BuiltIn,
    OneOf,
    OneOfAnyCase,
    Range,
)

SSL_CLIENT_AUTH: Final = OneOf("required", "requested", "none")
JWT_ALGORITHMS: Final = OneOfAnyCase("ES256", "RS256")
PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
JWT_RETRIEVER: Final = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
JWT_VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
JWT_VALIDATORS: Final = (JWT_VALIDATOR, "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator")
SSL_ENGINE_FACTORY: Final = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
# What they do is done here: who looks for users elsewhere (LDAP) would find that those of the settings get in.
SERVER_CALLBACK_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
    "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",
)
# How a broker of Kafka logs in at others, which is done otherwise here: its own classes admit no client.
OF_KAFKAS_CLIENTS: Final = BuiltIn("classes of org.apache.kafka", package="org.apache.kafka.")

# fmt: off
SECURITY_ROWS: Final = (
    # --- Security: general and TLS ---------------------------------------------------------------------------------
    ("connections.max.reauth.ms",             LONG,     0,         None,     MEDIUM, FIXED,  USED),
    ("sasl.server.max.receive.size",          INT,      524_288,   None,     MEDIUM, FIXED,  USED),
    ("security.providers", STRING, None, NO_CLASS, LOW, FIXED, CHECKED),
    ("principal.builder.class", CLASS, PRINCIPAL_BUILDER, BuiltIn(PRINCIPAL_BUILDER), MEDIUM, BROKER, CHECKED),
    ("ssl.client.auth",                       STRING,   "none",    SSL_CLIENT_AUTH, MEDIUM, BROKER, USED),
    ("ssl.principal.mapping.rules",           STRING,   "DEFAULT", None,     LOW,    FIXED,  USED),
    ("ssl.allow.dn.changes",                  BOOLEAN,  False,     None,     LOW,    FIXED,  USED),
    ("ssl.allow.san.changes",                 BOOLEAN,  False,     None,     LOW,    FIXED,  USED),
    ("ssl.protocol",                          STRING,   "TLSv1.3", None,     MEDIUM, BROKER, USED),
    ("ssl.provider", STRING, None, BuiltIn("SunJSSE"), MEDIUM, BROKER, CHECKED),
    ("ssl.enabled.protocols",                 LIST,     ("TLSv1.2", "TLSv1.3"), ANY_LIST, MEDIUM, BROKER, USED),
    ("ssl.keystore.type",                     STRING,   "JKS",     None,     MEDIUM, BROKER, USED),
    ("ssl.keystore.location",                 STRING,   None,      None,     MEDIUM, BROKER, USED),
    ("ssl.keystore.password",                 PASSWORD, None,      None,     MEDIUM, BROKER, USED),
    ("ssl.key.password",                      PASSWORD, None,      None,     MEDIUM, BROKER, USED),
    ("ssl.keystore.key",                      PASSWORD, None,      None,     MEDIUM, BROKER, USED),
    ("ssl.keystore.certificate.chain",        PASSWORD, None,      None,     MEDIUM, BROKER, USED),
    ("ssl.truststore.type",                   STRING,   "JKS",     None,     MEDIUM, BROKER, USED),
    ("ssl.truststore.location",               STRING,   None,      None,     MEDIUM, BROKER, USED),
    ("ssl.truststore.password",               PASSWORD, None,      None,     MEDIUM, BROKER, USED),
    ("ssl.truststore.certificates",           PASSWORD, None,      None,     MEDIUM, BROKER, USED),
    ("ssl.keymanager.algorithm", STRING, "SunX509", BuiltIn("SunX509", "NewSunX509", "PKIX"), MEDIUM, BROKER, CHECKED),
    ("ssl.trustmanager.algorithm", STRING, "PKIX", BuiltIn("PKIX", "SunX509"), MEDIUM, BROKER, CHECKED),
    ("ssl.endpoint.identification.algorithm", STRING,   "https",   None,     LOW,    BROKER, USED),
    ("ssl.secure.random.implementation",      STRING,   None,      None,     LOW,    BROKER, TUNES),
    ("ssl.cipher.suites",                     LIST,     (),        ANY_LIST, MEDIUM, BROKER, USED),
    ("ssl.engine.factory.class", CLASS, None, BuiltIn(SSL_ENGINE_FACTORY), LOW, BROKER, CHECKED),
    # --- Security: SASL --------------------------------------------------------------------------------------------
    ("sasl.mechanism.inter.broker.protocol",                STRING,   "GSSAPI",      None,     MEDIUM, BROKER, TUNES),
    ("sasl.enabled.mechanisms",                             LIST,     ("GSSAPI",),   ANY_LIST, MEDIUM, BROKER, USED),
    ("sasl.server.callback.handler.class", CLASS, None, BuiltIn(*SERVER_CALLBACK_HANDLERS), MEDIUM, FIXED, USED),
    ("sasl.kerberos.principal.to.local.rules",              LIST,     ("DEFAULT",),  ANY_LIST, MEDIUM, BROKER, TUNES),
    ("sasl.jaas.config",                                    PASSWORD, None,          None,     MEDIUM, BROKER, USED),
    ("sasl.client.callback.handler.class", CLASS, None, OF_KAFKAS_CLIENTS, MEDIUM, FIXED, CHECKED),
    ("sasl.login.class", CLASS, None, OF_KAFKAS_CLIENTS, MEDIUM, FIXED, CHECKED),
    ("sasl.login.callback.handler.class", CLASS, None, OF_KAFKAS_CLIENTS, MEDIUM, FIXED, CHECKED),
    ("sasl.kerberos.service.name",                          STRING,   None,          None,     MEDIUM, BROKER, TUNES),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, BROKER, TUNES),
    ("sasl.kerberos.ticket.renew.window.factor",            DOUBLE,   0.8,           None,     MEDIUM, BROKER, TUNES),
    ("sasl.kerberos.ticket.renew.jitter",                   DOUBLE,   0.05,          None,     MEDIUM, BROKER, TUNES),
    ("sasl.kerberos.min.time.before.relogin",               LONG,     60_000,        None,     MEDIUM, BROKER, TUNES),
    ("sasl.login.refresh.window.factor",                    DOUBLE,   0.8,           None,     MEDIUM, BROKER, TUNES),
    ("sasl.login.refresh.window.jitter",                    DOUBLE,   0.05,          None,     MEDIUM, BROKER, TUNES),
    ("sasl.login.refresh.min.period.seconds",               SHORT,    60,            None,     MEDIUM, BROKER, TUNES),
    ("sasl.login.refresh.buffer.seconds",                   SHORT,    300,           None,     MEDIUM, BROKER, TUNES),
    ("sasl.login.connect.timeout.ms",                       INT,      None,          None,     LOW,    FIXED,  USED),
    ("sasl.login.read.timeout.ms",                          INT,      None,          None,     LOW,    FIXED,  USED),
    ("sasl.login.retry.backoff.max.ms",                     LONG,     10_000,        None,     LOW,    FIXED,  TUNES),
    ("sasl.login.retry.backoff.ms",                         LONG,     100,           None,     LOW,    FIXED,  TUNES),
    ("sasl.oauthbearer.jwt.retriever.class", CLASS, JWT_RETRIEVER, OF_KAFKAS_CLIENTS, MEDIUM, FIXED, CHECKED),
    ("sasl.oauthbearer.jwt.validator.class", CLASS, JWT_VALIDATOR, BuiltIn(*JWT_VALIDATORS), MEDIUM, FIXED, CHECKED),
    ("sasl.oauthbearer.scope",                              STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.client.credentials.client.id",       STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.client.credentials.client.secret",   PASSWORD, None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", JWT_ALGORITHMS, MEDIUM, FIXED, TUNES),
    ("sasl.oauthbearer.assertion.claim.aud",                STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, Range(0, 86_400), LOW, FIXED, TUNES),
    ("sasl.oauthbearer.assertion.claim.iss",                STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.claim.jti.include",        BOOLEAN,  False,         None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, Range(0, 3600), LOW, FIXED, TUNES),
    ("sasl.oauthbearer.assertion.claim.sub",                STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.file",                     STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.private.key.file",         STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.private.key.passphrase",   PASSWORD, None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.assertion.template.file",            STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.scope.claim.name",                   STRING,   "scope",       None,     LOW,    FIXED,  USED),
    ("sasl.oauthbearer.sub.claim.name",                     STRING,   "sub",         None,     LOW,    FIXED,  USED),
    ("sasl.oauthbearer.token.endpoint.url",                 STRING,   None,          None,     MEDIUM, FIXED,  TUNES),
    ("sasl.oauthbearer.jwks.endpoint.url",                  STRING,   None,          None,     MEDIUM, FIXED,  USED),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms",           LONG,     3_600_000,     None,     LOW,    FIXED,  USED),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",     LONG,     100,           None,     LOW,    FIXED,  USED),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG,     10_000,        None,     LOW,    FIXED,  USED),
    ("sasl.oauthbearer.clock.skew.seconds",                 INT,      30,            None,     LOW,    FIXED,  USED),
    ("sasl.oauthbearer.expected.audience",                  LIST,     (),            ANY_LIST, HIGH,   FIXED,  USED),
    ("sasl.oauthbearer.expected.issuer",                    STRING,   None,          None,     HIGH,   FIXED,  USED),
    ("sasl.oauthbearer.allow.unverified.audience",          BOOLEAN,  False,         None,     MEDIUM, FIXED,  USED),
    ("sasl.oauthbearer.allow.unverified.issuer",            BOOLEAN,  False,         None,     MEDIUM, FIXED,  USED),
    # --- Security: delegation tokens -------------------------------------------------------------------------------
    ("delegation.token.secret.key",               PASSWORD, None,        None,     MEDIUM, FIXED, USED),
    ("delegation.token.max.lifetime.ms",          LONG,     604_800_000, POSITIVE, MEDIUM, FIXED, USED),
    ("delegation.token.expiry.time.ms",           LONG,     86_400_000,  POSITIVE, MEDIUM, FIXED, USED),
    ("delegation.token.expiry.check.interval.ms", LONG,     3_600_000,   POSITIVE, LOW,    FIXED, USED),
)
# fmt: on
