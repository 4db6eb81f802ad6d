//! The command families; each opens with its table.

pub mod acl;
pub mod bitmap;
pub mod client;
pub mod command;
pub mod config;
pub mod connection;
pub mod debug;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod help;
pub mod hyperloglog;
pub mod info;
pub mod keyspace;
pub mod latency;
pub mod list;
pub mod memory;
pub mod monitor;
pub mod pubsub;
pub mod save;
pub mod scripting;
pub mod server;
pub mod set;
pub mod slowlog;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod transaction;

use crate::command::Table;

/// Every command of this server.
pub fn table() -> Table {
    Table::new(&[
        string::COMMANDS,
        bitmap::COMMANDS,
        hyperloglog::COMMANDS,
        hash::COMMANDS,
        list::COMMANDS,
        set::COMMANDS,
        sorted_set::COMMANDS,
        geo::COMMANDS,
        stream::COMMANDS,
        generic::COMMANDS,
        connection::COMMANDS,
        client::COMMANDS,
        keyspace::COMMANDS,
        command::COMMANDS,
        config::COMMANDS,
        info::COMMANDS,
        slowlog::COMMANDS,
        latency::COMMANDS,
        memory::COMMANDS,
        debug::COMMANDS,
        server::COMMANDS,
        save::COMMANDS,
        acl::COMMANDS,
        scripting::COMMANDS,
        transaction::COMMANDS,
        pubsub::COMMANDS,
        monitor::COMMANDS,
    ])
}
