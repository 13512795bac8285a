//! The order of the variants within a round: a different one each time, because the kernel's clean-up after one
//! variant slows down the next.

/// The permutation of the items with this number. Consecutive numbers yield all permutations equally often.
pub(crate) fn permutation<T: Copy>(items: &[T], number: usize) -> Vec<T> {
    let mut left = items.to_vec();
    let mut number = number;
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        ordered.push(left.remove(number % left.len()));
        number /= left.len() + 1;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_order_comes_once_in_a_cycle() {
        let orders: BTreeSet<Vec<char>> =
            (0..24).map(|number| permutation(&['a', 'b', 'c', 'd'], number)).collect();
        assert_eq!(orders.len(), 24);
        assert_eq!(permutation(&['a', 'b'], 2), ['a', 'b']);
        assert!(permutation::<char>(&[], 5).is_empty());
    }
}
