//! PFDEBUG: the inside of a HyperLogLog.

use super::estimate::REGISTERS;
use super::sketch::{self, Sketch, dense_register, is_dense};
use super::{mark_as_written, sketch_of, store};
use crate::args::Args;
use crate::dispatch::echoed;
use crate::exec::{Exec, Outcome, error};

/// What PFDEBUG was asked.
enum Asked {
    Registers,
    Runs,
    Encoding,
    MakeDense,
    Unknown,
}

pub(super) fn pfdebug(exec: &mut Exec<'_>, args: &Args<'_>) -> Outcome {
    let asked = match () {
        () if args.is(1, "getreg") => Asked::Registers,
        () if args.is(1, "decode") => Asked::Runs,
        () if args.is(1, "encoding") => Asked::Encoding,
        () if args.is(1, "todense") => Asked::MakeDense,
        () => Asked::Unknown,
    };
    let mut locked = exec.lock(args.at(2))?;
    let missing = error("ERR The specified key does not exist");
    sketch_of(&exec.peek(locked.key()).ok_or(missing.clone())?)?;
    mark_as_written(exec, locked.key());
    let entry = exec.peek(locked.key()).ok_or(missing)?;
    let bytes = sketch_of(&entry)?;
    let dense = is_dense(bytes);
    match asked {
        Asked::Runs if dense => return Err("ERR HLL encoding is not sparse".into()),
        Asked::Runs => {
            let text = runs(bytes);
            exec.reply.put().bulk(text.as_bytes());
        }
        Asked::Encoding => exec.reply.put().simple(if dense { "dense" } else { "sparse" }),
        Asked::Registers | Asked::MakeDense => {
            let mut sketch = Sketch::of(bytes)?;
            if !dense {
                sketch.make_dense()?;
                store(exec, locked.key(), &sketch);
                exec.effect_unwatched(locked.key(), &[b"PFDEBUG", args.at(1), args.at(2)]);
            }
            let mut reply = exec.reply.put();
            if matches!(asked, Asked::MakeDense) {
                reply.integer(i64::from(!dense));
            } else {
                reply.array(REGISTERS);
                (0..REGISTERS).for_each(|index| reply.integer(i64::from(dense_register(sketch.bytes(), index))));
            }
        }
        Asked::Unknown => {
            return Err(format!("ERR Unknown PFDEBUG subcommand '{}'", echoed(args.at(1))).into());
        }
    }
    Ok(())
}

/// The runs of a sparse sketch: `z` and `Z` for zeros in one and two bytes, `v` for a value and its number.
fn runs(bytes: &[u8]) -> String {
    let written = sketch::runs(bytes).map(|run| match (run.value, run.bytes) {
        (0, 1) => format!("z:{}", run.len),
        (0, _) => format!("Z:{}", run.len),
        (value, _) => format!("v:{value},{}", run.len),
    });
    written.collect::<Vec<_>>().join(" ")
}
