//! Typed graph indices: a [`ValueId`] cannot be mistaken for a [`NodeId`].

arenaplan_pack::typed_index!(
    /// A value in a [`Graph`](crate::Graph).
    ValueId
);
arenaplan_pack::typed_index!(
    /// A node in a [`Graph`](crate::Graph).
    NodeId
);
