//! Typed indices of graphs: a [`ValueId`] can not be mistaken for a [`NodeId`].

arenaplan_pack::typed_index!(
    /// A value of a [`Graph`](crate::Graph).
    ValueId
);
arenaplan_pack::typed_index!(
    /// A node of a [`Graph`](crate::Graph).
    NodeId
);
