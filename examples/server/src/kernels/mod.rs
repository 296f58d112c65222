//! Kernels: ONNX operators on the memory of a step.
//!
//! A kernel is made once per node and shape. Attributes and weights are read then, and nodes that no
//! kernel runs are refused. To run a kernel allocates nothing, except that each product of `ndarray`
//! has a packing buffer of `matrixmultiply`, which is freed when the product is done.

mod elementwise;
mod moves;
mod operator;
mod product;
mod reduce;
mod window;

use arenaplan::program::StepMemory;
use arenaplan::{Graph, NodeId, ValueId};

use operator::MOST_INPUTS;
pub(crate) use operator::Operator;

use crate::error::Result;
use crate::tensors::Weights;

/// The code of one node for one shape.
pub trait Kernel: Send + Sync {
    /// Computes the outputs of the node.
    ///
    /// # Errors
    ///
    /// Those of the memory of a step: none, if the program is the one of the kernel.
    fn run(&self, memory: &mut StepMemory<'_>) -> arenaplan::Result<()>;
}

/// Returns the kernel of a node, in the graph for some sizes of the model's dimensions.
///
/// # Errors
///
/// [`Error::Unsupported`](crate::Error::Unsupported) if no kernel runs the node, and
/// [`Error::Weight`](crate::Error::Weight) if a constant is not there.
pub fn kernel_of(
    graph: &Graph,
    node: NodeId,
    weights: &Weights,
    sizes: &str,
) -> Result<Box<dyn Kernel>> {
    let operator = Operator::new(graph, node, weights, sizes);
    if !graph.node(node).domain().is_empty() {
        return Err(operator.refuse("it is of no standard operator set"));
    }
    if operator.inputs() > MOST_INPUTS {
        return Err(operator.refuse(format!("it has more than {MOST_INPUTS} inputs")));
    }
    let is_read = |value: ValueId| {
        let readers = graph.nodes().iter().filter(|node| node.inputs().contains(&Some(value)));
        readers.count() > 0 || graph.outputs().contains(&value)
    };
    if graph.node(node).outputs().iter().skip(1).flatten().any(|&value| is_read(value)) {
        return Err(operator.refuse("its second output is read"));
    }
    match graph.node(node).op() {
        "Add" => elementwise::binary(&operator, |a, b| a + b),
        "Sum" if operator.inputs() == 2 => elementwise::binary(&operator, |a, b| a + b),
        "Sub" => elementwise::binary(&operator, |a, b| a - b),
        "Mul" => elementwise::binary(&operator, |a, b| a * b),
        "Div" => elementwise::binary(&operator, |a, b| a / b),
        "Relu" => elementwise::unary(&operator, |x| x.max(0.0)),
        "Erf" => elementwise::unary(&operator, libm::erff),
        "Tanh" => elementwise::unary(&operator, f32::tanh),
        "Sigmoid" => elementwise::unary(&operator, |x| 1.0 / (1.0 + (-x).exp())),
        "Sqrt" => elementwise::unary(&operator, f32::sqrt),
        "BatchNormalization" => elementwise::batch_normalization(&operator),
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity" | "Dropout" => {
            moves::copy(&operator)
        }
        "Concat" => moves::concat(&operator),
        "Gather" => moves::gather(&operator),
        "Transpose" => moves::transpose(&operator),
        "MatMul" => product::matmul(&operator),
        "Gemm" => product::gemm(&operator),
        "Conv" => window::conv(&operator),
        "MaxPool" => window::max_pool(&operator),
        "AveragePool" => window::average_pool(&operator),
        "GlobalAveragePool" => reduce::global_average_pool(&operator),
        "Softmax" => reduce::softmax(&operator),
        "LayerNormalization" => reduce::layer_normalization(&operator),
        _ => Err(operator.refuse("no kernel runs this operator")),
    }
}
