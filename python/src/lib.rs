//! Python bindings of `arenaplan`: convert, detach from the interpreter, call, map the error.

#![allow(
    rustdoc::broken_intra_doc_links,
    clippy::doc_markdown,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "doc comments are Python docstrings, and Python hands over what it hands over"
)]

mod arena;
mod arenas;
mod arguments;
mod attributes;
mod call;
mod compiled;
mod costs;
mod error;
mod files;
mod getters;
mod graph;
mod hazards;
mod headroom;
mod incremental;
mod model;
mod pack;
mod plan;
mod planes;
mod planner;
mod quantized;
mod queue;
mod recompute;
mod results;
mod schedule;
mod shared;
mod sharing;
mod storage;
mod target;
mod team;
mod verdict;
mod views;

/// The Rust core of arenaplan.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::arena::{Arena, Lease};
    #[pymodule_export]
    use crate::arenas::{Allocation, IncrementalArena, SimpleArena};
    #[pymodule_export]
    use crate::compiled::{
        CompiledKernel, ConvWay, WindowSide, pack_matrix, pack_weights, packed_matrix,
        packed_weights,
    };
    #[pymodule_export]
    use crate::files::write_files;
    #[pymodule_export]
    use crate::graph::{Graph, graph_schema};
    #[pymodule_export]
    use crate::hazards::{Hazards, hazards_schema};
    #[pymodule_export]
    use crate::incremental::IncrementalPlanner;
    #[pymodule_export]
    use crate::model::{Model, model_schema};
    #[pymodule_export]
    use crate::pack::{
        Packing, pack, pack_again, pack_apart, pack_blame, pack_csv, pack_csv_again, pack_csv_blame,
    };
    #[pymodule_export]
    use crate::plan::{Plan, plan_schema, techniques};
    #[pymodule_export]
    use crate::planner::{Explained, explain, nodes_in_strips, plan, step_times};
    #[pymodule_export]
    use crate::quantized::{
        ByteEncoding, ByteResult, pack_quantized, pack_quantized_matrix, packed_quantized,
        packed_quantized_matrix, quantized_conv, quantized_depthwise, quantized_depthwise_scratch,
        quantized_lanes, quantized_product, quantized_product_scratch, quantized_way,
    };
    #[pymodule_export]
    use crate::queue::{Queue, Variable};
    #[pymodule_export]
    use crate::recompute::{
        RecomputeCurve, RecomputePoint, extra_of_chen, minimum_cut, recompute, recompute_curve,
    };
    #[pymodule_export]
    use crate::results::{
        ArenaBytes, Assign, Block, CallerBuffer, Covers, Estimate, Hazard, IncrementalPlacement,
        Level, LineBuffer, Live, MoveCost, PlacedWorkspace, Placement, PlanPoint, PlannedSpace,
        RowsInPlace, Share, StepOperands, Strips, Timetable,
    };
    #[pymodule_export]
    use crate::schedule::{Paging, Transfer};
    #[pymodule_export]
    use crate::shared::{SharedPlan, plan_together};
    #[pymodule_export]
    use crate::sharing::{
        StoragePlan, color_nodes, find_assigns, fuse, order_mutations, share_storage,
    };
    #[pymodule_export]
    use crate::storage::{StorageLayout, load_params, save_params};
    #[pymodule_export]
    use crate::target::{Target, targets};
    #[pymodule_export]
    use crate::team::ThreadTeam;
    #[pymodule_export]
    use crate::verdict::{SharedVerdict, Verdict};
    #[pymodule_export]
    use crate::views::set_views;

    /// Version of the Rust core.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
