//! The command families; each opens with its table.

pub mod client;
pub mod string;

use crate::command::Table;

/// Every command of this server.
pub fn table() -> Table {
    Table::new(&[string::COMMANDS, client::COMMANDS])
}
