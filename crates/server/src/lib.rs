//! The Gimmal server: workers, connections, dispatch and commands on one keyspace of locked shards.
