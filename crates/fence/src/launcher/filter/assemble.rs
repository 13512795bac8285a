//! From rules to a program for the kernel's filter machine. The calls are searched by halves, so that a call
//! that is not refused meets about ten instructions, and the kernel, which tries every call number when a
//! filter is installed, is done soon. One program holds all answers: filters are run one after the other.

use libc::sock_filter as Instruction;

use super::{Condition, Rule};

// Instructions of classic BPF.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

// Where the machine finds what it looks at.
const CALL_NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT_SIZE: u32 = 8;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;

/// The x32 interface has this architecture but other numbers, from here on.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00f3;

/// So few calls are compared one after the other.
const FEW: usize = 2;

/// The program that refuses these calls, which are in ascending order.
pub(super) fn program(calls: &[(u32, Vec<Rule>)]) -> Vec<Instruction> {
    let mut program = vec![
        plain(LOAD, ARCHITECTURE),
        branch(JUMP_IF_EQUAL, OWN_ARCHITECTURE, 1, 0),
        plain(RETURN, KILL),
        plain(LOAD, CALL_NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([branch(JUMP_IF_AT_LEAST, X32, 0, 1), refuse(libc::ENOSYS)]);
    program.extend(search(calls));
    program
}

/// Finds the call number among `calls`; whatever it is, the last instruction is a return.
fn search(calls: &[(u32, Vec<Rule>)]) -> Vec<Instruction> {
    if calls.len() <= FEW {
        let mut code = Vec::new();
        for (call, rules) in calls {
            let body = judge(rules);
            code.extend([branch(JUMP_IF_EQUAL, *call, 1, 0), skip(&body)]);
            code.extend(body);
        }
        code.push(plain(RETURN, ALLOW));
        return code;
    }
    let (low, high) = calls.split_at(calls.len() / 2);
    let low_code = search(low);
    // A conditional jump reaches 255 instructions, a plain one any number.
    let mut code = vec![branch(JUMP_IF_AT_LEAST, high[0].0, 0, 1), skip(&low_code)];
    code.extend(low_code);
    code.extend(search(high));
    code
}

/// The answer to one call: that of the first rule that applies.
fn judge(rules: &[Rule]) -> Vec<Instruction> {
    let mut code = Vec::new();
    for rule in rules {
        code.extend(apply(rule));
        if rule.conditions.is_empty() {
            return code;
        }
    }
    code.push(plain(RETURN, ALLOW));
    code
}

/// Returns the rule's answer if all its conditions hold, else goes on behind it.
fn apply(rule: &Rule) -> Vec<Instruction> {
    let mut code = vec![refuse(rule.errno)];
    // From the last condition to the first, because each jumps over what comes after it.
    for condition in rule.conditions.iter().rev() {
        let behind = u8::try_from(code.len()).unwrap_or(u8::MAX);
        let mut check = compare(*condition, behind);
        check.append(&mut code);
        code = check;
    }
    code
}

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
fn skip(code: &[Instruction]) -> Instruction {
    plain(JUMP, u32::try_from(code.len()).unwrap_or(u32::MAX))
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
        let program = program(&calls);
        for number in 0..400 {
            assert_eq!(run(&program, number, [0; 4]), (number % 2 == 0).then_some(1), "{number}");
        }
    }
}
