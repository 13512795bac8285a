//! Commands that run inside a fence: one measures opening a file, one only waits.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use crate::error::{Error, WhileDoing};
use crate::statistics::median;

/// The loop is timed in this many parts; the median counts.
const PARTS: u32 = 20;

/// Opens and closes the file `count` times and prints how many nanoseconds one time takes.
pub(crate) fn run_open_close(file: &Path, count: u32) -> Result<(), Error> {
    let per_part = (count / PARTS).max(1);
    let mut nanoseconds = Vec::new();
    for _ in 0..PARTS {
        let began = Instant::now();
        for _ in 0..per_part {
            drop(File::open(file).while_doing("opening the file")?);
        }
        nanoseconds.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(per_part));
    }
    println!("{}", median(&nanoseconds).unwrap_or_default());
    Ok(())
}

/// Lives until its input ends.
pub(crate) fn run_wait() -> Result<(), Error> {
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
