//! Much data: it arrives whole, and neither the front end nor the engine grows with it.

use crate::terminal::{Terminal, eventually};

/// The most memory that a process had so far, in kilobytes.
fn peak(process: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The front end and its engine.
fn shells(t: &mut Terminal) -> [i32; 2] {
    t.output("echo $$ > engine.txt");
    [t.process, t.content("engine.txt").trim().parse().unwrap()]
}

/// Some megabytes are normal life; a copy of the data would be a hundred.
const SLACK: u64 = 20_000;

fn grown(shells: [i32; 2], before: [u64; 2]) -> [u64; 2] {
    [0, 1].map(|at| peak(shells[at]).saturating_sub(before[at]))
}

#[test]
fn random_data_passes_through_a_pipeline_unharmed() {
    let mut t = Terminal::ready();
    let shells = shells(&mut t);
    let before = shells.map(peak);
    t.output("cat /dev/urandom | head -c 100M | tee data | sha256sum | cut -c1-64 > one.txt");
    t.output("sha256sum < data | cut -c1-64 > two.txt; stat -c %s data > size.txt");
    assert_eq!(t.content("one.txt"), t.content("two.txt"));
    assert_eq!(t.content("size.txt").trim(), "104857600");
    let grown = grown(shells, before);
    assert!(
        grown.iter().all(|kilobytes| *kilobytes < SLACK),
        "{grown:?}"
    );
}

#[test]
fn a_long_here_document_reaches_its_reader_whole() {
    let mut t = Terminal::ready();
    let shells = shells(&mut t);
    let before = peak(shells[0]);
    t.output(
        "{ echo 'sha256sum <<\"END\" > here.txt'; seq -f 'line %.0f of a here-document' 1 3300000; echo END; } > big.sh",
    );
    t.output("sed '1d;$d' big.sh | sha256sum > wanted.txt; stat -c %s big.sh > size.txt");
    t.output(". ./big.sh");
    assert_eq!(t.content("here.txt"), t.content("wanted.txt"));
    let size: u64 = t.content("size.txt").trim().parse().unwrap();
    assert!(size > 100_000_000, "{size}");
    assert!(peak(shells[0]).saturating_sub(before) < SLACK);
}

#[test]
fn a_gigabyte_on_the_terminal_arrives_whole() {
    let mut t = Terminal::ready();
    let shells = shells(&mut t);
    let before = shells.map(peak);
    // In octal, so that the editor's echo of the line has none of the letters that are counted.
    t.keys("head -c 1G /dev/zero | tr '\\0' '\\132'; echo; echo end-$((4*4))\r");
    assert_eq!(t.count_until(b'Z', "end-16"), 1 << 30);
    let grown = grown(shells, before);
    assert!(
        grown.iter().all(|kilobytes| *kilobytes < SLACK),
        "{grown:?}"
    );
    eventually("the prompt comes back", || {
        t.settle(std::time::Duration::from_millis(50));
        t.unseen().contains("ready> ")
    });
}
