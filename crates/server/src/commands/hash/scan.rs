//! HSCAN.

use super::read;
use crate::args::Args;
use crate::exec::{Exec, Outcome};
use crate::scan::{self, Options};
use gimmal_resp::encode_bulk;
use gimmal_store::types::Form;

pub(super) fn hscan(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let cursor = scan::cursor(args.at(2))?;
    let options = Options::parse(args, 3, Some("novalues"));
    let mut key = exec.lock(args.at(1))?;
    let Some(fields) = read(exec, key.key())? else {
        scan::answer(exec, 0, 0, &[]);
        return Ok(());
    };
    let options = options?;
    let (mut found, mut items, now_ms) = (0, Vec::new(), exec.now_ms());
    let count = scan::count(&options, fields.form() == Form::Compact, fields.len());
    let next = fields.scan(cursor, count, |field| {
        if field.is_live(now_ms) && options.fits(field.name) {
            found += 1;
            encode_bulk(&mut items, field.name);
            if !options.bare {
                encode_bulk(&mut items, field.value);
            }
        }
    });
    scan::answer(exec, next, if options.bare { found } else { 2 * found }, &items);
    Ok(())
}
