//! Counts tokens with the tokenizer of the test parts (`o200k_base`, which current models of `OpenAI` use; those of others
//! differ by some per cent, which ratios within one table hardly show).

use std::process::Command;

use crate::error::{Error, WhileDoing};
use crate::programs::Programs;

const PROGRAM: &str = "count-tokens.mjs";

pub(crate) fn count_tokens(programs: &Programs, texts: &[&str]) -> Result<Vec<u64>, Error> {
    let parts = programs.parts_directory();
    if !parts.join(PROGRAM).is_file() {
        return Err(Error::new("the tokenizer is missing: run scripts/install-test-parts first"));
    }
    let output = Command::new("node")
        .arg(PROGRAM)
        .args(texts)
        .current_dir(parts)
        .output()
        .while_doing("starting the tokenizer")?;
    if !output.status.success() {
        return Err(Error::new(format!("the tokenizer failed: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let counted: Vec<u64> = serde_json::from_slice(&output.stdout)?;
    if counted.len() == texts.len() { Ok(counted) } else { Err(Error::new("the tokenizer left texts out")) }
}
