//! Assembles rules into a program for the kernel's filter machine. It searches the calls by halves, so a call that is
//! not refused runs about ten instructions, and the kernel, which tries every call number when a filter is
//! installed, finishes soon. One program holds all answers, because the kernel runs every installed filter.

use libc::sock_filter as Instruction;
use thiserror::Error;

use super::{Condition, Rule};

// Instructions of classic BPF.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

// Offsets of what a filter can load.
const CALL_NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT_SIZE: u32 = 8;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;

/// Numbers from here on belong to calls that did not exist when this filter was written (Linux 6.18), or to the x32
/// interface. All architectures number new calls alike.
pub(super) const FIRST_UNKNOWN: u32 = 470;
/// Numbers between the older calls of an architecture and those that all have in common.
#[cfg(target_arch = "x86_64")]
const UNUSED: std::ops::Range<u32> = 337..424;
#[cfg(not(target_arch = "x86_64"))]
const UNUSED: std::ops::Range<u32> = 295..424;

#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00f3;

/// Up to this many calls are compared one after the other.
const FEW: usize = 2;

/// Why no program could be assembled. A jump that fell short of its target would answer for the wrong call, so
/// nothing is installed then.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum AssembleError {
    #[error("a jump over {0} instructions is too far")]
    JumpTooFar(usize),
    #[error("{0} is not a system call number")]
    NotACall(i64),
}

/// The program that refuses these calls, which are in ascending order.
pub(super) fn program(calls: &[(u32, Vec<Rule>)]) -> Result<Vec<Instruction>, AssembleError> {
    let mut program = vec![
        plain(LOAD, ARCHITECTURE),
        branch(JUMP_IF_EQUAL, OWN_ARCHITECTURE, 1, 0),
        plain(RETURN, KILL),
        plain(LOAD, CALL_NUMBER),
    ];
    // Programs take such a call for one that the kernel does not have, and do without.
    program.extend([branch(JUMP_IF_AT_LEAST, FIRST_UNKNOWN, 0, 1), refuse(libc::ENOSYS)]);
    program.extend([
        branch(JUMP_IF_AT_LEAST, UNUSED.start, 0, 2),
        branch(JUMP_IF_AT_LEAST, UNUSED.end, 1, 0),
        refuse(libc::ENOSYS),
    ]);
    program.extend(search(calls)?);
    Ok(program)
}

/// Finds the call number among `calls`. The last instruction is always a return.
fn search(calls: &[(u32, Vec<Rule>)]) -> Result<Vec<Instruction>, AssembleError> {
    if calls.len() <= FEW {
        let mut code = Vec::new();
        for (call, rules) in calls {
            let body = judge(rules)?;
            code.extend([branch(JUMP_IF_EQUAL, *call, 1, 0), skip(&body)?]);
            code.extend(body);
        }
        code.push(plain(RETURN, ALLOW));
        return Ok(code);
    }
    let (low, high) = calls.split_at(calls.len() / 2);
    let low_code = search(low)?;
    // A conditional jump reaches 255 instructions, an unconditional one any number.
    let mut code = vec![branch(JUMP_IF_AT_LEAST, high[0].0, 0, 1), skip(&low_code)?];
    code.extend(low_code);
    code.extend(search(high)?);
    Ok(code)
}

/// Answers one call as the first rule that applies says.
fn judge(rules: &[Rule]) -> Result<Vec<Instruction>, AssembleError> {
    let mut code = Vec::new();
    for rule in rules {
        code.extend(apply(rule)?);
        if rule.conditions.is_empty() {
            return Ok(code);
        }
    }
    code.push(plain(RETURN, ALLOW));
    Ok(code)
}

/// Returns the rule's answer if all its conditions hold, else continues behind it.
fn apply(rule: &Rule) -> Result<Vec<Instruction>, AssembleError> {
    let mut code = vec![refuse(rule.errno)];
    // From the last condition to the first, because each jumps over what comes after it.
    for condition in rule.conditions.iter().rev() {
        let behind = u8::try_from(code.len()).map_err(|_| AssembleError::JumpTooFar(code.len()))?;
        let mut check = compare(*condition, behind);
        check.append(&mut code);
        code = check;
    }
    Ok(code)
}

/// Continues with the next instruction if the condition holds, else jumps over `behind` more.
fn compare(condition: Condition, behind: u8) -> Vec<Instruction> {
    let Condition { argument, mask, value, is_equal } = condition;
    let mut code = vec![plain(LOAD, ARGUMENTS + ARGUMENT_SIZE * u32::from(argument))];
    if mask != u32::MAX {
        code.push(plain(AND, mask));
    }
    let (if_equal, if_not) = if is_equal { (0, behind) } else { (behind, 0) };
    code.push(branch(JUMP_IF_EQUAL, value, if_equal, if_not));
    code
}

fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn refuse(errno: i32) -> Instruction {
    plain(RETURN, REFUSE | errno.unsigned_abs())
}

/// A jump over `code`.
fn skip(code: &[Instruction]) -> Result<Instruction, AssembleError> {
    let length = u32::try_from(code.len()).map_err(|_| AssembleError::JumpTooFar(code.len()))?;
    Ok(plain(JUMP, length))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The machine itself, for calls of this architecture: an error number, or `None` for "allowed".
    pub(in super::super) fn run(program: &[Instruction], call: u32, arguments: [u32; 4]) -> Option<u32> {
        let (mut accumulator, mut place) = (0, 0);
        loop {
            let Instruction { code, jt, jf, k } = program[place];
            place += 1;
            let mut jump_if = |is_true: bool| place += usize::from(if is_true { jt } else { jf });
            match code {
                LOAD if k == CALL_NUMBER => accumulator = call,
                LOAD if k == ARCHITECTURE => accumulator = OWN_ARCHITECTURE,
                LOAD => accumulator = arguments[((k - ARGUMENTS) / ARGUMENT_SIZE) as usize],
                AND => accumulator &= k,
                JUMP_IF_EQUAL => jump_if(accumulator == k),
                JUMP_IF_AT_LEAST => jump_if(accumulator >= k),
                JUMP => place += k as usize,
                RETURN if k == ALLOW => return None,
                RETURN => return Some(k & 0xffff),
                other => panic!("no such instruction: {other:#x}"),
            }
        }
    }

    #[test]
    fn a_call_that_is_not_listed_is_found_out_soon() {
        let calls: Vec<(u32, Vec<Rule>)> =
            (0..200).map(|number| (number * 2, vec![Rule { conditions: Vec::new(), errno: 1 }])).collect();
        let program = program(&calls).unwrap();
        for number in (0..400).filter(|number| !UNUSED.contains(number)) {
            assert_eq!(run(&program, number, [0; 4]), (number % 2 == 0).then_some(1), "{number}");
        }
    }

    #[test]
    fn a_jump_that_cannot_reach_is_refused() {
        // Each masked condition takes three instructions, and the first jumps over all that follow it.
        let condition = Condition { argument: 0, mask: 1, value: 1, is_equal: true };
        let calls = |conditions: usize| {
            let rules = vec![Rule { conditions: vec![condition; conditions], errno: libc::EPERM }];
            [(7, rules)]
        };
        let longest = program(&calls(85)).unwrap();
        assert_eq!(run(&longest, 7, [1, 0, 0, 0]), Some(libc::EPERM.unsigned_abs()));
        assert_eq!(run(&longest, 7, [0; 4]), None);
        assert_eq!(program(&calls(86)).unwrap_err(), AssembleError::JumpTooFar(256));
    }
}
