//! Runs commands by turns and prints what each costs: `interleave ROUNDS CMD [ARG]... [-- CMD [ARG]...]...`
//! Times on a busy machine drift; by turns they drift together, and the ratios hold.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let rounds = arguments
        .next()
        .and_then(|text| text.to_str()?.parse::<usize>().ok());
    let words: Vec<_> = arguments.collect();
    let commands: Vec<_> = words
        .split(|word| word == "--")
        .filter(|words| !words.is_empty())
        .collect();
    let Some(rounds) = rounds.filter(|_| !commands.is_empty()) else {
        return ExitCode::from(2);
    };
    let mut times = vec![Vec::with_capacity(rounds); commands.len()];
    for round in 0..rounds + rounds / 10 {
        for (at, words) in commands.iter().enumerate() {
            let mut command = Command::new(&words[0]);
            command
                .args(&words[1..])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let started = Instant::now();
            if command.status().is_err() {
                return ExitCode::FAILURE;
            }
            // The first tenth warms the caches.
            if round >= rounds / 10 {
                times[at].push(started.elapsed());
            }
        }
    }
    let mut out = std::io::stdout().lock();
    let mut base = None;
    for (words, times) in commands.iter().zip(&mut times) {
        times.sort();
        let (median, low) = (times[times.len() / 2], times[times.len() / 10]);
        let (base_median, base_low) = *base.get_or_insert((median, low));
        let ratio = |time: Duration, base: Duration| time.as_secs_f64() / base.as_secs_f64();
        let _ = writeln!(
            out,
            "{:.3}\t{:.3}\t{:.1}\t{:.1}\t{}",
            ratio(median, base_median),
            ratio(low, base_low),
            median.as_secs_f64() * 1e6,
            low.as_secs_f64() * 1e6,
            words[0].display()
        );
    }
    ExitCode::SUCCESS
}
