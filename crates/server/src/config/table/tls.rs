//! TLS: accepted, so that files of other servers load; this version opens no TLS port.

use super::super::directive::{Directive, bound, choice, flag, number, optional};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    number("tls-port", 0, bound::PORT, "TLS port; 0 opens none.").not_yet(),
    optional("tls-cert-file", "Certificate of the server.").not_yet(),
    optional("tls-key-file", "Its private key.").not_yet(),
    optional("tls-key-file-pass", "Password of that key.").sensitive().not_yet(),
    optional("tls-client-cert-file", "Certificate for connections that the server opens.").not_yet(),
    optional("tls-client-key-file", "Its private key.").not_yet(),
    optional("tls-client-key-file-pass", "Password of that key.").sensitive().not_yet(),
    optional("tls-dh-params-file", "Parameters of the Diffie-Hellman exchange, for old OpenSSL.").not_yet(),
    optional("tls-ca-cert-file", "Certificates that clients' ones are checked with.").not_yet(),
    optional("tls-ca-cert-dir", "Directory of such certificates.").not_yet(),
    choice("tls-auth-clients", 1, &[("no", 0), ("yes", 1), ("optional", 2)], "Whether clients must show a certificate.").not_yet(),
    flag("tls-replication", false, "Use TLS to the primary.").not_yet(),
    flag("tls-cluster", false, "Use TLS on the cluster bus.").not_yet(),
    optional("tls-protocols", "Versions of TLS to allow.").not_yet(),
    optional("tls-ciphers", "Ciphers to allow up to TLS 1.2.").not_yet(),
    optional("tls-ciphersuites", "Ciphers to allow in TLS 1.3.").not_yet(),
    flag("tls-prefer-server-ciphers", false, "Let the server's order of ciphers decide.").not_yet(),
    flag("tls-session-caching", true, "Let clients resume sessions.").not_yet(),
    number("tls-session-cache-size", 20480, bound::INT, "Sessions remembered; 0 for no limit.").not_yet(),
    number("tls-session-cache-timeout", 300, bound::INT, "Seconds for which they are remembered.").not_yet(),
];
