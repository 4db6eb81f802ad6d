//! Makes a failing episode short: leaves out parts of it as long as the same difference remains.
//!
//! Delta debugging (Zeller, Hildebrandt 2002) with halving parts, and a bound on the tries.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::compare::shown;
use super::episode::{Episode, Step};
use super::play::Difference;

/// Tries until the shortest so far is good enough.
const TRIES: usize = 400;
/// The same for the time of all tries: some wait for a reply that does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A short episode with a difference like `found`, which `fails` finds by playing.
pub fn shrink(
    episode: &Episode,
    found: &Difference,
    fails: &mut impl FnMut(&Episode) -> Result<Option<Difference>>,
) -> Result<(Episode, Difference)> {
    let mut shortest = Episode { steps: episode.steps[..=found.step].to_vec(), ..episode.clone() };
    let mut difference = found.clone();
    let one_by_one = Episode { steps: shortest.steps.iter().map(alone).collect(), ..shortest.clone() };
    let mut tries = 0;
    let mut accept = |candidate: &Episode| -> Result<Option<Difference>> {
        tries += 1;
        Ok(fails(candidate)?.filter(|other| other.signature() == found.signature()))
    };
    if let Some(other) = accept(&one_by_one)? {
        (shortest, difference) = (one_by_one, other);
    }
    let mut part = (shortest.steps.len() / 2).max(1);
    let (mut left, start_of_tries) = (TRIES, Instant::now());
    loop {
        let mut shorter = false;
        let mut start = 0;
        while start < shortest.steps.len() && left > 0 {
            left = if start_of_tries.elapsed() < PATIENCE { left - 1 } else { 0 };
            let mut candidate = shortest.clone();
            candidate.steps.drain(start..(start + part).min(shortest.steps.len()));
            match accept(&candidate)? {
                Some(other) => {
                    candidate.steps.truncate(other.step + 1);
                    (shortest, difference, shorter) = (candidate, other, true);
                }
                None => start += part,
            }
        }
        if left == 0 || part == 1 && !shorter {
            return Ok((shortest, difference));
        }
        part = if part > 1 { part / 2 } else { 1 };
    }
}

fn alone(step: &Step) -> Step {
    match step {
        Step::Command { connection, words, .. } => {
            Step::Command { connection: *connection, words: words.clone(), ends_pipeline: true }
        }
        Step::Checkpoint => Step::Checkpoint,
    }
}

/// The episode as lines for a person: connection and command.
pub fn lines(episode: &Episode) -> Vec<String> {
    let one = episode.protocols.len() == 1;
    let line = |step: &Step| match step {
        Step::Command { words, .. } if one => shown(words),
        Step::Command { connection, words, .. } => format!("{connection}> {}", shown(words)),
        Step::Checkpoint => "(the keyspace is compared)".to_owned(),
    };
    episode.steps.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::pair::words;
    use crate::wire::Protocol;

    #[test]
    fn what_is_needed_for_the_difference_remains() {
        let steps = (0..200)
            .map(|n| Step::Command { connection: 0, words: words(&["SET", &n.to_string()]), ends_pipeline: false })
            .collect();
        let episode = Episode { protocols: vec![Protocol::Resp2], config: Vec::new(), steps };
        let mut fails = |episode: &Episode| {
            let texts = lines(episode);
            let at = |line: &str| texts.iter().position(|text| text == line);
            let both = at("SET 17").zip(at("SET 150")).filter(|(first, last)| first < last);
            Ok(both.map(|(_, step)| Difference {
                step,
                command: "SET 150".into(),
                redis: "+".into(),
                gimmal: "-".into(),
            }))
        };
        let found = fails(&episode).expect("plays").expect("fails");
        let (shortest, difference) = shrink(&episode, &found, &mut fails).expect("plays");
        assert_eq!(lines(&shortest), ["SET 17", "SET 150"]);
        assert_eq!(difference.step, 1);
    }
}
