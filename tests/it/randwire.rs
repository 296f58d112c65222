//! Randomly wired networks (Xie et al., ICCV 2019): stages of nodes that are wired by a model of
//! random graphs. A node is the sum of its inputs, a rectifier, a depthwise and a pointwise
//! convolution.

use arenaplan::graph::{Effects, InPlace};
use arenaplan::{DType, Graph, GraphBuilder, Node, Value, ValueId, ValueKind};

/// Numbers that look random.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

/// A model of random graphs.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "tests use one of them, benchmarks all")]
pub enum Edges {
    /// Watts and Strogatz: a ring of nodes with so many neighbors, of whose edges a percentage is
    /// rewired.
    SmallWorld { neighbors: usize, rewired: usize },
    /// Barabási and Albert: each new node has edges to so many earlier ones, more likely to those with
    /// more edges.
    Preferential { edges: usize },
    /// Erdős and Rényi: a percentage of all pairs.
    Random { percent: usize },
}

/// The parameters of one network.
#[derive(Clone, Copy, Debug)]
pub struct Wiring {
    /// Nodes of a stage.
    pub nodes: usize,
    /// Edges of a stage.
    pub edges: Edges,
    /// Channels of the first stage; the others have two and four times as many.
    pub channels: u64,
}

/// A network as it grows.
pub struct Net {
    pub builder: GraphBuilder,
    nodes: usize,
}

impl Net {
    pub fn new(name: String) -> Self {
        Self { builder: Graph::builder(name), nodes: 0 }
    }

    /// Adds an image.
    pub fn image(&mut self, shape: [u64; 3]) -> ValueId {
        let image = Value::new("image", ValueKind::Input, DType::FLOAT32, shape);
        self.builder.add_value(image.expect("a small value"))
    }

    /// Adds a node that makes `shape` of `inputs`.
    pub fn node(
        &mut self,
        op: &str,
        inputs: &[ValueId],
        shape: [u64; 3],
        in_place: bool,
    ) -> ValueId {
        let name = format!("{op}{}", self.nodes);
        self.nodes += 1;
        let value = Value::new(&*name, ValueKind::Activation, DType::FLOAT32, shape);
        let output = self.builder.add_value(value.expect("a small value"));
        let pair = |input| InPlace { input, output: 0, identity: false };
        let pairs = if in_place { (0..inputs.len()).map(pair).collect() } else { Vec::new() };
        let effects = Effects { in_place: pairs, ..Effects::default() };
        let node = Node::new(name, op).reads(inputs.iter().copied()).writes([output]);
        self.builder.add_node(node.with_effects(effects));
        output
    }
}

/// Returns the edges of a stage, from lower to higher nodes.
fn wire(wiring: Wiring, numbers: &mut Numbers) -> Vec<(usize, usize)> {
    let nodes = wiring.nodes;
    let mut edges = match wiring.edges {
        Edges::SmallWorld { neighbors, rewired } => small_world(nodes, neighbors, rewired, numbers),
        Edges::Preferential { edges } => preferential(nodes, edges, numbers),
        Edges::Random { percent } => {
            let pairs = (0..nodes).flat_map(|high| (0..high).map(move |low| (low, high)));
            pairs.filter(|_| numbers.below(100) < percent).collect()
        }
    };
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn small_world(
    nodes: usize,
    neighbors: usize,
    rewired: usize,
    numbers: &mut Numbers,
) -> Vec<(usize, usize)> {
    let mut edges: Vec<(usize, usize)> = Vec::new();
    let sorted = |a: usize, b: usize| (a.min(b), a.max(b));
    for near in 1..=neighbors / 2 {
        for node in 0..nodes {
            edges.push(sorted(node, (node + near) % nodes));
        }
    }
    for at in 0..edges.len() {
        if numbers.below(100) < rewired {
            let node = edges[at].0;
            for _ in 0..nodes {
                let other = numbers.below(nodes);
                let edge = sorted(node, other);
                if other != node && !edges.contains(&edge) {
                    edges[at] = edge;
                    break;
                }
            }
        }
    }
    edges
}

fn preferential(nodes: usize, each: usize, numbers: &mut Numbers) -> Vec<(usize, usize)> {
    let mut edges: Vec<(usize, usize)> = Vec::new();
    for node in each..nodes {
        let mut others: Vec<usize> = Vec::new();
        while others.len() < each {
            // An end of a random edge: nodes with more edges are more likely.
            let end = numbers.below(2 * edges.len().max(1));
            let other = match edges.get(end / 2) {
                Some(&(low, high)) => [low, high][end % 2],
                None => numbers.below(node),
            };
            let other = if others.contains(&other) { numbers.below(node) } else { other };
            if !others.contains(&other) {
                others.push(other);
            }
        }
        edges.extend(others.into_iter().map(|other| (other, node)));
    }
    edges
}

/// Returns a network of three stages with images of 28, 14 and 7 pixels.
pub fn randwire(wiring: Wiring, seed: u64) -> Graph {
    let mut numbers = Numbers::new(seed);
    let mut net = Net::new(format!("randwire_{seed}"));
    let image = net.image([3, 224, 224]);
    let c = wiring.channels;
    let mut last = net.node("Conv", &[image], [c / 2, 112, 112], false);
    last = net.node("Conv", &[last], [c, 56, 56], false);
    for (scale, pixels) in [(1, 28), (2, 14), (4, 7)] {
        let shape = [c * scale, pixels, pixels];
        let edges = wire(wiring, &mut numbers);
        let mut made: Vec<ValueId> = Vec::new();
        for node in 0..wiring.nodes {
            let from = edges.iter().filter(|edge| edge.1 == node).map(|edge| made[edge.0]);
            let mut inputs: Vec<ValueId> = from.collect();
            let is_first = inputs.is_empty();
            if is_first {
                inputs.push(last);
            }
            let mut value = inputs[0];
            if inputs.len() > 1 {
                value = net.node("Sum", &inputs, shape, true);
            }
            // The first nodes of a stage halve the image.
            let relu = if is_first {
                [c * scale / if scale == 1 { 1 } else { 2 }, pixels * 2, pixels * 2]
            } else {
                shape
            };
            value = net.node("Relu", &[value], relu, true);
            value = net.node(
                "Depthwise",
                &[value],
                if is_first { [relu[0], pixels, pixels] } else { shape },
                false,
            );
            made.push(net.node("Pointwise", &[value], shape, false));
        }
        let is_last = |node: &usize| edges.iter().all(|edge| edge.0 != *node);
        let ends: Vec<ValueId> = (0..wiring.nodes).filter(is_last).map(|node| made[node]).collect();
        last = net.node("Mean", &ends, shape, true);
    }
    let out = net.node("Conv", &[last], [1280, 7, 7], false);
    let pooled = net.node("Pool", &[out], [1280, 1, 1], false);
    let logits = net.node("Gemm", &[pooled], [1000, 1, 1], false);
    net.builder.add_output(logits);
    net.builder.build().expect("a valid graph")
}
