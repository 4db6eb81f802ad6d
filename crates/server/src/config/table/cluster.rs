//! Cluster.

use super::super::check;
use super::super::directive::{Directive, bound, bytes, choice, flag, number, optional, text};

/// The section's rows.
#[rustfmt::skip] // one row, one line
pub const DIRECTIVES: &[Directive] = &[
    flag("cluster-enabled", false, "Be a node of a cluster.").at_start().not_yet(),
    text("cluster-config-file", "nodes.conf", "File the node keeps its view of the cluster in.").at_start().not_yet().check(check::cluster_config_file),
    number("cluster-node-timeout", 15_000, bound::LONG, "Milliseconds of silence after which a node is taken for failed.").not_yet(),
    number("cluster-port", 0, bound::PORT, "Port of the cluster bus; 0 for the TCP port plus 10000.").at_start().not_yet(),
    number("cluster-replica-validity-factor", 10, bound::INT, "Node timeouts of lost contact after which a replica does not stand for election; 0 for never.").alias(&["cluster-slave-validity-factor"]).not_yet(),
    number("cluster-migration-barrier", 1, bound::INT, "Replicas a primary keeps before one may move to another.").not_yet(),
    flag("cluster-allow-replica-migration", true, "Let replicas move to primaries without one.").not_yet(),
    flag("cluster-require-full-coverage", true, "Serve nothing while a slot has no node.").not_yet(),
    flag("cluster-replica-no-failover", false, "Never take over from the primary unasked.").alias(&["cluster-slave-no-failover"]).not_yet(),
    flag("cluster-allow-reads-when-down", false, "Serve reads while the cluster is down.").not_yet(),
    flag("cluster-allow-pubsubshard-when-down", true, "Serve sharded channels while the cluster is down.").not_yet(),
    bytes("cluster-link-sendbuf-limit", 0, bound::BIG_SIZE, "Unsent bytes at which a bus link is closed; 0 for no limit.").not_yet(),
    optional("cluster-announce-ip", "Address the node reports.").not_yet(),
    number("cluster-announce-port", 0, bound::PORT, "Port the node reports; 0 for its own.").not_yet(),
    number("cluster-announce-tls-port", 0, bound::PORT, "TLS port the node reports; 0 for its own.").not_yet(),
    number("cluster-announce-bus-port", 0, bound::PORT, "Bus port the node reports; 0 for its own.").not_yet(),
    optional("cluster-announce-hostname", "Host name the node reports.").not_yet().check(check::hostname),
    optional("cluster-announce-human-nodename", "Name the node has in logs.").not_yet().check(check::node_name),
    optional("cluster-announce-client-ipv4", "IPv4 address the node reports to clients.").valkey().not_yet().check(check::ipv4),
    optional("cluster-announce-client-ipv6", "IPv6 address the node reports to clients.").valkey().not_yet().check(check::ipv6),
    choice("cluster-preferred-endpoint-type", 0, &[("ip", 0), ("hostname", 1), ("unknown-endpoint", 2)], "What redirections name a node by.").not_yet(),
    number("cluster-blacklist-ttl", 60, bound::LONG, "Seconds for which a forgotten node stays forgotten.").valkey().not_yet(),
    flag("cluster-slot-stats-enabled", false, "Count use per slot.").valkey().not_yet(),
    number("cluster-ping-interval", 0, bound::LONG, "Milliseconds between pings to random nodes; 0 for the node's own choice.").valkey().hidden().not_yet(),
];
