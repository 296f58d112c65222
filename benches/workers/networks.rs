//! Networks that the search for timetables was not tuned on.

use arenaplan::graph::{Effects, View, Whole};
use arenaplan::{DType, Graph, Node, Value, ValueId, ValueKind};

use crate::randwire::{Edges, Net, Numbers, Wiring, randwire};

/// A network and its name.
pub struct Named {
    pub name: String,
    pub graph: Graph,
}

/// Returns the networks on which the search was tuned: small worlds, four seeds each.
pub fn tuned_on() -> Vec<Named> {
    let world = |neighbors, rewired| Edges::SmallWorld { neighbors, rewired };
    let kinds = [
        ("WS(4, 0.75)", Wiring { nodes: 32, edges: world(4, 75), channels: 78 }),
        ("WS(6, 0.5)", Wiring { nodes: 24, edges: world(6, 50), channels: 32 }),
        ("WS(2, 0.9)", Wiring { nodes: 48, edges: world(2, 90), channels: 64 }),
    ];
    named(&kinds, 1..=4)
}

/// Returns networks of other models, sizes and seeds.
pub fn held_out() -> Vec<Named> {
    let world = |neighbors, rewired| Edges::SmallWorld { neighbors, rewired };
    let kinds = [
        ("WS(4, 0.75), 24 nodes", Wiring { nodes: 24, edges: world(4, 75), channels: 48 }),
        ("WS(4, 0.25), 40 nodes", Wiring { nodes: 40, edges: world(4, 25), channels: 64 }),
        ("WS(8, 0.75), 32 nodes", Wiring { nodes: 32, edges: world(8, 75), channels: 78 }),
        (
            "BA(2), 32 nodes",
            Wiring { nodes: 32, edges: Edges::Preferential { edges: 2 }, channels: 78 },
        ),
        (
            "BA(5), 28 nodes",
            Wiring { nodes: 28, edges: Edges::Preferential { edges: 5 }, channels: 54 },
        ),
        (
            "ER(0.2), 32 nodes",
            Wiring { nodes: 32, edges: Edges::Random { percent: 20 }, channels: 78 },
        ),
        (
            "ER(0.1), 44 nodes",
            Wiring { nodes: 44, edges: Edges::Random { percent: 10 }, channels: 40 },
        ),
    ];
    let mut all = named(&kinds, 101..=103);
    for seed in 101..=103 {
        all.push(Named { name: format!("cells {seed}"), graph: cells(seed) });
    }
    for seed in 101..=103 {
        all.push(Named { name: format!("branches {seed}"), graph: branches(seed) });
    }
    all
}

fn named(kinds: &[(&str, Wiring)], seeds: std::ops::RangeInclusive<u64>) -> Vec<Named> {
    let one = |name: &str, wiring, seed| Named {
        name: format!("{name} {seed}"),
        graph: randwire(wiring, seed),
    };
    let each = kinds
        .iter()
        .flat_map(|&(name, wiring)| seeds.clone().map(move |seed| one(name, wiring, seed)));
    each.collect()
}

/// Adds a concatenation of channels, whose operands may be parts of the result.
fn concat(net: &mut Net, inputs: &[ValueId], channels: &[u64], pixels: u64) -> ValueId {
    let shape = [channels.iter().sum(), pixels, pixels];
    let name = format!("concat{}", inputs[0].index());
    let value = Value::new(&*name, ValueKind::Activation, DType::FLOAT32, shape);
    let output = net.builder.add_value(value.expect("a small value"));
    let mut offset = 0;
    let views = channels.iter().enumerate().map(|(input, &channels)| {
        let view = View { input, output: 0, offset, whole: Whole::Output };
        offset += channels * pixels * pixels * 4;
        view
    });
    let effects = Effects { views: views.collect(), ..Effects::default() };
    let node = Node::new(name, "Concat").reads(inputs.iter().copied()).writes([output]);
    net.builder.add_node(node.with_effects(effects));
    output
}

/// Returns a network of cells as searches for architectures find them (Liu et al., DARTS, ICLR 2019):
/// a cell reads the two before it, has four inner nodes that are sums of two operations each, and
/// ends with the concatenation of the four. Operations are drawn by the seed.
fn cells(seed: u64) -> Graph {
    let mut numbers = Numbers::new(seed);
    let mut net = Net::new(format!("cells_{seed}"));
    let image = net.image([3, 112, 112]);
    let mut channels = 24;
    let mut pixels = 28;
    let stem = net.node("Conv", &[image], [channels, 56, 56], false);
    let first = net.node("Conv", &[stem], [channels * 4, pixels, pixels], false);
    // Two kinds of cells, each drawn once.
    let mut kind = || -> Vec<[(usize, usize); 2]> {
        let mut edge = |node: usize| (numbers.below(node + 2), numbers.below(5));
        (0..4).map(|node| [edge(node), edge(node)]).collect()
    };
    let (normal, reduction) = (kind(), kind());
    let mut last = [(first, [channels * 4, pixels, pixels]); 2];
    for cell in 0..9 {
        let is_reduction = cell == 3 || cell == 6;
        let genotype = if is_reduction { &reduction } else { &normal };
        if is_reduction {
            channels *= 2;
        }
        // Both operands get the channels and pixels of the newer one.
        pixels = last[1].1[1];
        let mut made: Vec<(ValueId, u64)> = Vec::new();
        for (value, shape) in last {
            let relu = net.node("Relu", &[value], shape, true);
            made.push((net.node("Conv", &[relu], [channels, pixels, pixels], false), pixels));
        }
        let after = if is_reduction { pixels / 2 } else { pixels };
        for pair in genotype {
            let ends = pair.map(|(from, op)| operation(&mut net, made[from], op, channels, after));
            let sum = net.node("Add", &ends, [channels, after, after], true);
            made.push((sum, after));
        }
        let parts: Vec<ValueId> = made[2..].iter().map(|it| it.0).collect();
        let whole = concat(&mut net, &parts, &[channels; 4], after);
        last = [last[1], (whole, [channels * 4, after, after])];
    }
    let pooled = net.node("Pool", &[last[1].0], [channels * 4, 1, 1], false);
    let logits = net.node("Gemm", &[pooled], [1000, 1, 1], false);
    net.builder.add_output(logits);
    net.builder.build().expect("a valid graph")
}

/// Adds one of five operations of a cell.
fn operation(
    net: &mut Net,
    from: (ValueId, u64),
    op: usize,
    channels: u64,
    pixels: u64,
) -> ValueId {
    let (value, before) = from;
    let [old, new] = [before, pixels].map(|pixels| [channels, pixels, pixels]);
    match op {
        // Separable convolutions, twice.
        0 | 1 => {
            let relu = net.node("Relu", &[value], old, true);
            let depthwise = net.node("Depthwise", &[relu], new, false);
            let pointwise = net.node("Pointwise", &[depthwise], new, false);
            let relu = net.node("Relu", &[pointwise], new, true);
            let depthwise = net.node("Depthwise", &[relu], new, false);
            net.node("Pointwise", &[depthwise], new, false)
        }
        2 => {
            let relu = net.node("Relu", &[value], old, true);
            let depthwise = net.node("Dilated", &[relu], new, false);
            net.node("Pointwise", &[depthwise], new, false)
        }
        3 => net.node("MaxPool", &[value], new, false),
        _ if old == new => value,
        _ => net.node("Conv", &[value], new, false),
    }
}

/// Returns a network of modules with four branches (Szegedy et al., CVPR 2015), whose channels are
/// drawn by the seed.
fn branches(seed: u64) -> Graph {
    let mut numbers = Numbers::new(seed);
    let mut net = Net::new(format!("branches_{seed}"));
    let image = net.image([3, 112, 112]);
    let mut last = net.node("Conv", &[image], [64, 28, 28], false);
    let mut shape = [64, 28, 28];
    for module in 0..8 {
        if module == 2 || module == 6 {
            shape = [shape[0], shape[1] / 2, shape[2] / 2];
            last = net.node("MaxPool", &[last], shape, false);
        }
        let mut channels = |least: usize| 8 * (least + numbers.below(2 * least)) as u64;
        let outs = [channels(4), channels(6), channels(3), channels(3)];
        let (narrow, double) = (channels(4), channels(2));
        let pixels = shape[1];
        let of = |channels: u64| [channels, pixels, pixels];
        let mut conv = |input: ValueId, channels: u64| {
            let made = net.node("Conv", &[input], of(channels), false);
            net.node("Relu", &[made], of(channels), true)
        };
        let one = conv(last, outs[0]);
        let two = conv(last, narrow);
        let two = conv(two, outs[1]);
        let three = conv(last, double);
        let three = conv(three, double * 2);
        let three = conv(three, outs[2]);
        let pooled = net.node("MaxPool", &[last], shape, false);
        let made = net.node("Conv", &[pooled], of(outs[3]), false);
        let four = net.node("Relu", &[made], of(outs[3]), true);
        last = concat(&mut net, &[one, two, three, four], &outs, pixels);
        shape = of(outs.iter().sum());
    }
    let pooled = net.node("Pool", &[last], [shape[0], 1, 1], false);
    net.builder.add_output(pooled);
    net.builder.build().expect("a valid graph")
}
