//! `gimmal-server`: starts the server as `redis-server` users expect.

fn main() {}
