//! Numbered slots whose numbers go stale when what they held is gone.

/// A place in a slab; says nothing about a later tenant of the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

const GENERATIONS: u32 = 1 << 24;

impl Key {
    /// Packs the key and a tag into the number that epoll carries.
    pub fn token(self, tag: u8) -> u64 {
        u64::from(tag) << 56 | u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Takes such a number apart.
    pub fn from_token(token: u64) -> (u8, Key) {
        let generation = (token >> 32) as u32 % GENERATIONS;
        (
            (token >> 56) as u8,
            Key {
                index: token as u32,
                generation,
            },
        )
    }
}

/// A growing set of slots.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores a value.
    pub fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(value);
        Key {
            index,
            generation: slot.0,
        }
    }

    /// The value, if it is still there.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.0 == key.generation {
            slot.1.as_mut()
        } else {
            None
        }
    }

    /// Takes the value out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.0 != key.generation {
            return None;
        }
        let value = slot.1.take()?;
        slot.0 = (slot.0 + 1) % GENERATIONS;
        self.free.push(key.index);
        Some(value)
    }

    /// The keys of all values.
    pub fn keys(&self) -> Vec<Key> {
        let full = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, (_, value))| value.is_some());
        full.map(|(i, (generation, _))| Key {
            index: i as u32,
            generation: *generation,
        })
        .collect()
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_stale_and_survive_packing() {
        let mut slab = Slab::default();
        let a = slab.insert('a');
        assert_eq!(Key::from_token(a.token(7)), (7, a));
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_ne!(a, b);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(b), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.keys(), [b]);
        assert_eq!(slab.iter().collect::<String>(), "b");
        assert_eq!(Key::from_token(b.token(255)), (255, b));
    }
}
