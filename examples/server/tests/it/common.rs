//! The models of the tests, and requests that ONNX Runtime has answered.

use std::path::PathBuf;

use arenaplan_server::model::ServedModel;
use safetensors::SafeTensors;

/// The models, which `models/make.py` makes.
pub(crate) const MODELS: [&str; 2] = ["keyword", "encoder"];

/// Returns the folder of the models in the repository.
fn own_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models")
}

/// Returns the folder of the models whose outputs are compared: that of the repository, unless the
/// environment variable `ARENAPLAN_SERVER_MODELS` names another one.
fn folder() -> PathBuf {
    std::env::var_os("ARENAPLAN_SERVER_MODELS").map_or_else(own_folder, PathBuf::from)
}

/// Returns the names of all models in the folder.
pub(crate) fn models() -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| Some(name.strip_suffix(".plan.json")?.to_owned()));
    names.collect()
}

/// Returns the name of the files of a model, without their suffixes.
pub(crate) fn base(name: &str) -> PathBuf {
    let folder = if MODELS.contains(&name) { own_folder() } else { folder() };
    folder.join(name)
}

pub(crate) fn load(name: &str) -> ServedModel {
    ServedModel::load(name, &base(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A request, and the answer of ONNX Runtime.
pub(crate) struct Known {
    pub(crate) rows: usize,
    pub(crate) request: Vec<u8>,
    /// Outputs by name.
    pub(crate) outputs: Vec<(String, Vec<f32>)>,
}

/// Returns the requests of a model with their answers.
pub(crate) fn known(name: &str) -> Vec<Known> {
    let mut path = base(name).into_os_string();
    path.push(".expected.safetensors");
    let file = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let mut all = Vec::new();
    for rows in [1, 3, 8] {
        let of = |kind: &str| {
            let prefix = format!("{rows}/{kind}/");
            let named = tensors.iter().filter_map(|(name, tensor)| {
                Some((name.strip_prefix(&prefix)?.to_owned(), tensor))
            });
            named.collect::<Vec<_>>()
        };
        let request = safetensors::serialize(of("input"), None).unwrap();
        let outputs = of("output").into_iter().map(|(name, it)| (name, reals(it.data())));
        all.push(Known { rows, request, outputs: outputs.collect() });
    }
    all
}

/// Returns elements of `float32`.
pub(crate) fn reals(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

/// Compares outputs, as safetensors, with those that are known.
pub(crate) fn compare(name: &str, known: &Known, found: &[u8]) {
    let found = SafeTensors::deserialize(found).unwrap();
    assert_eq!(found.len(), known.outputs.len(), "{name}");
    for (output, expected) in &known.outputs {
        let tensor = found.tensor(output).unwrap();
        assert_eq!(tensor.shape()[0], known.rows, "{name} {output}");
        let found = reals(tensor.data());
        assert_eq!(found.len(), expected.len(), "{name} {output}");
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let limit = 2e-5 * (1.0 + expected.abs());
            let is_near = (found - expected).abs() <= limit;
            assert!(is_near, "{name} {output}[{at}] of {}: {found}, not {expected}", known.rows);
        }
    }
}
