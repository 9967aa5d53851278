//! The paper's own scheme, as a model in memory: the oracle for `unit`, and what reproduces its
//! figures. It stores numbers instead of blocks and seals nothing.
//!
//! Paper: algorithms 1 to 11, with the repairs B1 to B8 of the design note: no number stands for
//! "nothing", a leaf has a step of 1, the id stands in the leaf, all nodes of a path are read before
//! the first is written, and a carried tuple is put anew.

/// Address of a block in the Data area.
type Address = usize;

/// A node of the hidden map: addresses of nodes of the next level, or of data.
type Node = Vec<Option<Address>>;

/// What was written to the device, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// `PD_write` operations, so slots visited.
    pub pd_writes: u64,
    /// Blocks in the Data area.
    pub data: u64,
    /// Blocks of the hidden map's root, the public bitmap and the head.
    pub fixed: u64,
    /// Blocks of the public position map.
    pub map: u64,
}

impl Cost {
    /// All blocks.
    pub const fn total(&self) -> u64 {
        self.data + self.fixed + self.map
    }
}

#[derive(Debug, Clone)]
struct Tuple {
    /// Nodes of levels 2 to k on the way to the data.
    path: Vec<Node>,
    /// In the last entry of the leaf.
    id: u32,
    content: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    public: Option<(u32, u64)>,
    /// `None` is a dummy.
    hidden: Option<Tuple>,
}

/// A device of the paper: `k + 1` blocks a slot, visited in a circle.
#[derive(Debug, Clone)]
pub struct Classic {
    k: usize,
    fanout: usize,
    slots: Vec<Slot>,
    head: usize,
    public_map: Vec<Option<usize>>,
    root: Node,
    cost: Cost,
}

impl Classic {
    /// A device for volumes of `blocks` blocks each, with a hidden map of `k` levels (the root is
    /// one of them) of `fanout` entries, and a share of `spare` slots more than blocks.
    ///
    /// # Panics
    /// If the map does not cover the blocks.
    pub fn new(blocks: usize, k: usize, fanout: usize, spare: f64) -> Self {
        assert!(k >= 2, "a root and a leaf");
        assert!((fanout - 1) * fanout.pow(u32::try_from(k - 1).expect("a few levels")) >= blocks);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let slots = (blocks as f64 / (1.0 - spare)) as usize;
        Self {
            k,
            fanout,
            slots: vec![Slot::default(); slots],
            head: 0,
            public_map: vec![None; blocks],
            root: vec![None; fanout],
            cost: Cost::default(),
        }
    }

    /// What has been written so far.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// Slots of the Data area.
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Algorithm 10.
    pub fn public_read(&self, id: u32) -> Option<u64> {
        let slot = self.public_map[id as usize]?;
        self.slots[slot].public.map(|(_, content)| content)
    }

    /// Algorithm 11.
    pub fn hidden_read(&self, id: u32) -> Option<u64> {
        let address = self.hidden_map(id)?;
        self.slots[address / (self.k + 1)].hidden.as_ref().map(|tuple| tuple.content)
    }

    /// Algorithm 5: a public write, with a hidden one if there is one. Returns the hidden write if
    /// it has found no room yet.
    pub fn write(
        &mut self,
        id: u32,
        content: u64,
        mut hidden: Option<(u32, u64)>,
    ) -> Option<(u32, u64)> {
        loop {
            // Table 1: what is valid stays; then what is new; then a dummy.
            let kept = self.valid_public(self.head);
            let carried = self.valid_hidden(self.head);
            let fresh = if carried.is_none() { hidden.take() } else { None };
            self.pd_write(kept.unwrap_or((id, content)), carried.or(fresh));
            let slot = self.head;
            self.head = (self.head + 1) % self.slots.len();
            if kept.is_none() {
                self.public_map[id as usize] = Some(slot);
                self.cost.map += 1;
                return hidden;
            }
        }
    }

    fn valid_public(&self, slot: usize) -> Option<(u32, u64)> {
        let (id, content) = self.slots[slot].public?;
        (self.public_map[id as usize] == Some(slot)).then_some((id, content))
    }

    fn valid_hidden(&self, slot: usize) -> Option<(u32, u64)> {
        let tuple = self.slots[slot].hidden.as_ref()?;
        let own = slot * (self.k + 1) + self.k;
        (self.hidden_map(tuple.id) == Some(own)).then_some((tuple.id, tuple.content))
    }

    /// Algorithms 3, 4 and 8: the slot under the head is written, tuple and all.
    fn pd_write(&mut self, public: (u32, u64), hidden: Option<(u32, u64)>) {
        self.cost.pd_writes += 1;
        self.cost.data += self.k as u64 + 1;
        self.cost.fixed += 3;
        let start = self.head * (self.k + 1);
        let hidden = hidden.map(|(id, content)| {
            let mut path = self.path(id);
            let indices = self.indices(id);
            self.root[indices[0]] = Some(start + 1);
            for (depth, node) in path.iter_mut().enumerate() {
                // Level i stands at start + i - 1, the data behind the leaf.
                node[indices[depth + 1]] = Some(start + depth + 2);
            }
            Tuple { path, id, content }
        });
        self.slots[self.head] = Slot { public: Some(public), hidden };
    }

    /// Algorithm 9: the index in each node on the way to `id`, from the root on.
    fn indices(&self, id: u32) -> Vec<usize> {
        let mut rest = id as usize;
        let mut indices = Vec::with_capacity(self.k);
        for level in 1..self.k {
            let below = u32::try_from(self.k - 1 - level).expect("a few levels");
            let step = (self.fanout - 1) * self.fanout.pow(below);
            indices.push(rest / step);
            rest %= step;
        }
        indices.push(rest);
        indices
    }

    /// The current nodes of levels 2 to k on the way to `id`; a missing one is empty.
    fn path(&self, id: u32) -> Vec<Node> {
        let indices = self.indices(id);
        let mut node = &self.root;
        let empty: Node = vec![None; self.fanout];
        let mut path = Vec::with_capacity(self.k - 1);
        for index in &indices[..self.k - 1] {
            let next = node[*index].and_then(|address| self.node(address));
            path.push(next.cloned().unwrap_or_else(|| empty.clone()));
            let Some(next) = next else {
                path.resize(self.k - 1, empty.clone());
                break;
            };
            node = next;
        }
        path
    }

    fn node(&self, address: Address) -> Option<&Node> {
        let tuple = self.slots[address / (self.k + 1)].hidden.as_ref()?;
        tuple.path.get(address % (self.k + 1) - 1)
    }

    fn hidden_map(&self, id: u32) -> Option<Address> {
        let indices = self.indices(id);
        let mut node = &self.root;
        for index in &indices[..self.k - 1] {
            node = self.node(node[*index]?)?;
        }
        node[indices[self.k - 1]]
    }

    /// Invariant I4: a live node lies in a tuple whose data is live. Returns how many do not.
    pub fn dangling_nodes(&self) -> usize {
        let mut live = vec![false; self.slots.len()];
        let mut nodes = vec![(&self.root, 1)];
        while let Some((node, level)) = nodes.pop() {
            for address in node.iter().flatten() {
                live[address / (self.k + 1)] = true;
                if level < self.k
                    && let Some(next) = self.node(*address)
                {
                    nodes.push((next, level + 1));
                }
            }
        }
        (0..self.slots.len()).filter(|s| live[*s] && self.valid_hidden(*s).is_none()).count()
    }
}

/// The chance that the slot under the head can be overwritten, under uniform traffic.
///
/// Paper: equation 1, solved by halving: the share p with p = 1 - exp(-p / (1 - spare)).
pub fn overwritable(spare: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0);
    for _ in 0..100 {
        let p = f64::midpoint(low, high);
        if 1.0 - (-p / (1.0 - spare)).exp() > p { low = p } else { high = p }
    }
    low
}

#[cfg(test)]
mod tests;
