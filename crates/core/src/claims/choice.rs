//! Which devices satisfy several wishes at once, none of them twice.
//!
//! Devices of a kind are alike, so whether all wishes can be met is a flow from wishes to kinds. Which devices are
//! taken is decided by name: wishes with the fewest kinds choose first, each takes the first device that leaves enough
//! for the others.

/// So many devices of certain kinds.
#[derive(Clone, Debug)]
pub(super) struct Wish<'a> {
    /// The kinds that do, sorted.
    pub kinds: &'a [u32],
    /// How many.
    pub count: u64,
}

/// The devices for each wish, or `None` if they cannot all be met. `available` are places of devices and their kinds,
/// in the order in which they are preferred.
pub(super) fn choose(wishes: &[Wish<'_>], available: &[(u32, u32)]) -> Option<Vec<Vec<u32>>> {
    let total = wishes.iter().fold(0_u64, |sum, wish| sum.saturating_add(wish.count));
    if total > available.len() as u64 {
        return None;
    }
    let mut problem = Problem::new(wishes, available);
    if !problem.is_solvable() {
        return None;
    }
    let mut order: Vec<usize> = (0..wishes.len()).filter(|wish| wishes[*wish].count > 0).collect();
    order.sort_by_key(|wish| problem.accepted[*wish].len());
    let mut chosen = vec![Vec::new(); wishes.len()];
    let mut taken = vec![false; available.len()];
    for wish in order {
        // A kind whose loss the others could not bear will not become dispensable later: supply only shrinks.
        let mut refused = vec![false; problem.supply.len()];
        for (place, (device, kind)) in available.iter().enumerate() {
            if problem.needs[wish] == 0 {
                break;
            }
            let Some(kind) = problem.kinds.iter().position(|known| known == kind) else { continue };
            if taken[place] || refused[kind] || !problem.accepted[wish].contains(&kind) {
                continue;
            }
            problem.needs[wish] -= 1;
            problem.supply[kind] -= 1;
            if problem.is_solvable() {
                taken[place] = true;
                chosen[wish].push(*device);
            } else {
                problem.needs[wish] += 1;
                problem.supply[kind] += 1;
                refused[kind] = true;
            }
        }
    }
    Some(chosen)
}

/// Wishes against kinds.
struct Problem {
    /// The kinds there are.
    kinds: Vec<u32>,
    /// How many devices of each kind are left.
    supply: Vec<u64>,
    /// How many devices each wish still lacks.
    needs: Vec<u64>,
    /// The kinds each wish accepts, as places in `kinds`.
    accepted: Vec<Vec<usize>>,
}

impl Problem {
    fn new(wishes: &[Wish<'_>], available: &[(u32, u32)]) -> Self {
        let mut kinds: Vec<u32> = available.iter().map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut supply = vec![0; kinds.len()];
        for (_, kind) in available {
            if let Ok(place) = kinds.binary_search(kind) {
                supply[place] += 1;
            }
        }
        let accepted = wishes.iter().map(|wish| {
            let accepts = |place: &usize| wish.kinds.binary_search(&kinds[*place]).is_ok();
            (0..kinds.len()).filter(accepts).collect()
        });
        let accepted = accepted.collect();
        Self { kinds, supply, needs: wishes.iter().map(|wish| wish.count).collect(), accepted }
    }

    /// Whether all needs can be met from what is left.
    fn is_solvable(&self) -> bool {
        let mut left = self.supply.clone();
        let mut flow = vec![vec![0_u64; left.len()]; self.needs.len()];
        for wish in 0..self.needs.len() {
            let mut need = self.needs[wish];
            while need > 0 {
                let moved = self.augment(wish, need, &mut left, &mut flow);
                if moved == 0 {
                    return false;
                }
                need -= moved;
            }
        }
        true
    }

    /// Gives a wish up to `need` more devices, moving what others have to other kinds if need be. Returns how many.
    fn augment(&self, wish: usize, need: u64, left: &mut [u64], flow: &mut [Vec<u64>]) -> u64 {
        // For each kind that was reached, the wish that reached it; for each wish, the kind it would give up.
        let mut reached: Vec<Option<usize>> = vec![None; left.len()];
        let mut gives_up: Vec<Option<usize>> = vec![None; self.needs.len()];
        let mut open = vec![wish];
        let mut next = 0;
        while let Some(current) = open.get(next).copied() {
            next += 1;
            for kind in &self.accepted[current] {
                if reached[*kind].is_some() {
                    continue;
                }
                reached[*kind] = Some(current);
                if left[*kind] > 0 {
                    return push(wish, *kind, need, &reached, &gives_up, left, flow);
                }
                for (other, theirs) in flow.iter().enumerate() {
                    if other != wish && theirs[*kind] > 0 && gives_up[other].is_none() {
                        gives_up[other] = Some(*kind);
                        open.push(other);
                    }
                }
            }
        }
        0
    }
}

/// Moves as much as possible along the path that ends at `end`.
fn push(
    wish: usize,
    end: usize,
    need: u64,
    reached: &[Option<usize>],
    gives_up: &[Option<usize>],
    left: &mut [u64],
    flow: &mut [Vec<u64>],
) -> u64 {
    let mut path = Vec::new();
    let mut amount = need.min(left[end]);
    let mut kind = end;
    while let Some(taker) = reached[kind] {
        path.push((taker, kind));
        let Some(given) = gives_up[taker].filter(|_| taker != wish) else { break };
        amount = amount.min(flow[taker][given]);
        kind = given;
    }
    left[end] -= amount;
    for (taker, kind) in path {
        flow[taker][kind] += amount;
        if let Some(given) = gives_up[taker].filter(|_| taker != wish) {
            flow[taker][given] -= amount;
        }
    }
    amount
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wish(kinds: &[u32], count: u64) -> Wish<'_> {
        Wish { kinds, count }
    }

    #[test]
    fn the_first_devices_by_name_are_taken() {
        let chosen = choose(&[wish(&[1], 2)], &[(0, 1), (1, 2), (2, 1), (3, 1)]);
        assert_eq!(chosen, Some(vec![vec![0, 2]]));
    }

    #[test]
    fn a_wish_that_takes_anything_leaves_the_rare_device_to_the_one_that_needs_it() {
        let chosen = choose(&[wish(&[1, 2], 1), wish(&[1], 1)], &[(0, 1), (1, 2)]);
        assert_eq!(chosen, Some(vec![vec![1], vec![0]]));
    }

    #[test]
    fn wishes_of_as_many_kinds_each_are_told_apart_by_what_the_others_need() {
        let wishes = [wish(&[1, 2], 1), wish(&[1, 3], 1), wish(&[2, 3], 1)];
        let chosen = choose(&wishes, &[(0, 1), (1, 2), (2, 3)]).expect("there is a way");
        let mut all: Vec<u32> = chosen.concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    }

    #[test]
    fn a_count_beyond_all_machines_is_refused_at_once() {
        assert_eq!(choose(&[wish(&[1], u64::MAX), wish(&[1], u64::MAX)], &[(0, 1)]), None);
    }

    /// Tries every assignment of devices to wishes.
    fn exhaustive(wishes: &[(Vec<u32>, u64)], needs: &mut Vec<u64>, available: &[(u32, u32)]) -> bool {
        let Some(((_, kind), rest)) = available.split_first() else { return needs.iter().all(|need| *need == 0) };
        if exhaustive(wishes, needs, rest) {
            return true;
        }
        for place in 0..wishes.len() {
            if needs[place] > 0 && wishes[place].0.contains(kind) {
                needs[place] -= 1;
                let found = exhaustive(wishes, needs, rest);
                needs[place] += 1;
                if found {
                    return true;
                }
            }
        }
        false
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::test_cases(300)))]

        #[test]
        fn devices_are_found_iff_some_assignment_exists(
            wishes in prop::collection::vec((prop::collection::btree_set(0_u32..4, 0..4), 0_u64..3), 0..5),
            kinds in prop::collection::vec(0_u32..4, 0..8),
        ) {
            let wishes: Vec<(Vec<u32>, u64)> =
                wishes.into_iter().map(|(kinds, count)| (kinds.into_iter().collect(), count)).collect();
            let available: Vec<(u32, u32)> = (0_u32..).zip(kinds.iter().copied()).collect();
            let borrowed: Vec<Wish<'_>> = wishes.iter().map(|(kinds, count)| wish(kinds, *count)).collect();
            let chosen = choose(&borrowed, &available);
            let mut needs: Vec<u64> = wishes.iter().map(|(_, count)| *count).collect();
            prop_assert_eq!(chosen.is_some(), exhaustive(&wishes, &mut needs, &available));
            let Some(chosen) = chosen else { return Ok(()) };
            let mut all = chosen.concat();
            for (devices, (accepted, count)) in chosen.iter().zip(&wishes) {
                prop_assert_eq!(devices.len() as u64, *count);
                prop_assert!(devices.iter().all(|device| accepted.contains(&kinds[*device as usize])));
            }
            all.sort_unstable();
            let before = all.len();
            all.dedup();
            prop_assert_eq!(all.len(), before);
        }
    }
}
