//! Outputs are those of ONNX Runtime; a warm run allocates no tensor.

use crate::common::{compare, known, load, models};
use allocation_counter::measure;
use arenaplan::{ArenaPool, Lease};
use arenaplan_server::model::{Fit, ServedShape};
use safetensors::SafeTensors;

#[test]
fn outputs_are_those_of_onnx_runtime() {
    let names = models();
    assert!(!names.is_empty());
    for name in &names {
        let model = load(name);
        let pool = ArenaPool::builder().cap(model.arena_bytes().next_multiple_of(4096)).build();
        let pool = pool.unwrap();
        for known in known(name) {
            let request = SafeTensors::deserialize(&known.request).unwrap();
            let Fit { shape, rows } = model.fit(&request).unwrap();
            assert!(shape.rows() >= rows as u64 && rows == known.rows);
            // The second run finds the bytes of the first.
            for _ in 0..2 {
                let mut lease = pool.try_lease(shape.program()).unwrap();
                shape.write_inputs(&mut lease, &request).unwrap();
                shape.run(&mut lease).unwrap();
                compare(name, &known, &shape.read_outputs(&lease, known.rows).unwrap());
            }
        }
    }
}

/// Returns the number of matrix products of a run: each has a packing buffer.
fn products(shape: &ServedShape) -> u64 {
    let graph = shape.graph();
    let products = graph.nodes().iter().map(|node| {
        let dims = |input: usize| node.input(input).map(|value| graph.value(value).shape());
        match node.op() {
            "Gemm" => 1,
            "MatMul" if dims(1).is_some_and(|dims| dims.len() == 2) => 1,
            "MatMul" => dims(0).unwrap().iter().rev().skip(2).product(),
            // A product of weights and places per image; other convolutions are sums of rows.
            "Conv" if dims(1).is_some_and(|dims| dims[2..] == [1, 1]) => dims(0).unwrap()[0],
            _ => 0,
        }
    });
    products.sum()
}

#[test]
fn a_warm_run_allocates_no_tensor() {
    for name in &models() {
        let model = load(name);
        let pool = ArenaPool::builder().cap(1 << 30).build().unwrap();
        for known in known(name) {
            let request = SafeTensors::deserialize(&known.request).unwrap();
            let shape = model.fit(&request).unwrap().shape;
            let run = |lease: &mut Lease| {
                shape.write_inputs(lease, &request).unwrap();
                shape.run(lease).unwrap();
            };
            run(&mut pool.try_lease(shape.program()).unwrap());
            // Leasing, lending and giving back.
            let leasing = measure(|| {
                let mut lease = pool.try_lease(shape.program()).unwrap();
                lease.run(|_, _| Ok::<(), arenaplan::Error>(())).unwrap();
            });
            assert_eq!(leasing.count_total, 0, "{name}");
            // Kernels: a packing buffer per product, and nothing else.
            let mut lease = pool.try_lease(shape.program()).unwrap();
            shape.write_inputs(&mut lease, &request).unwrap();
            let kernels = measure(|| shape.run(&mut lease).unwrap());
            assert_eq!(kernels.count_total, products(shape), "{name}, {} rows", known.rows);
            assert_eq!((kernels.count_current, kernels.bytes_current), (0, 0), "{name}");
        }
    }
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    let model = load("encoder");
    let refusal = |tensors: &[(&str, Dtype, &[usize])]| {
        let data = vec![0; 1 << 20];
        let views = tensors.iter().map(|&(name, dtype, shape)| {
            let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            (name, TensorView::new(dtype, shape.to_vec(), &data[..bytes]).unwrap())
        });
        let request = safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap();
        let request = SafeTensors::deserialize(&request).unwrap();
        model.fit(&request).map_or_else(|error| error.to_string(), |_| "accepted".into())
    };
    let mask = |rows| -> (&str, Dtype, [usize; 4]) { ("mask", Dtype::F32, [rows, 1, 1, 16]) };
    for (ids, dtype, rows, expected) in [
        ([2, 16], Dtype::I64, 2, "accepted"),
        ([2, 16], Dtype::I64, 3, "does not fit"),
        ([2, 15], Dtype::I64, 2, "does not fit"),
        ([9, 16], Dtype::I64, 9, "is not one of the shapes"),
        ([2, 16], Dtype::F32, 2, "its type is F32, not I64"),
    ] {
        let (name, kind, shape) = mask(rows);
        let text = refusal(&[("ids", dtype, &ids), (name, kind, &shape)]);
        assert!(text.contains(expected), "{ids:?}: {text}");
    }
    let (name, kind, shape) = mask(2);
    let other = ("a", Dtype::F32, &[9][..]);
    let text = refusal(&[other, ("ids", Dtype::I64, &[2, 16]), (name, kind, &shape)]);
    assert_eq!(text, "input \"a\": the model reads ids, mask alone");
    let text = refusal(&[("ids", Dtype::I64, &[2, 16])]);
    assert!(text.contains("\"mask\"") && text.contains("missing"), "{text}");
}
