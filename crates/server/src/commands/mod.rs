//! The command families; each opens with its table.

pub mod client;
pub mod command;
pub mod config;
pub mod connection;
pub mod generic;
pub mod help;
pub mod info;
pub mod keyspace;
pub mod string;

use crate::command::Table;

/// Every command of this server.
pub fn table() -> Table {
    Table::new(&[
        string::COMMANDS,
        generic::COMMANDS,
        connection::COMMANDS,
        client::COMMANDS,
        keyspace::COMMANDS,
        command::COMMANDS,
        config::COMMANDS,
        info::COMMANDS,
    ])
}
