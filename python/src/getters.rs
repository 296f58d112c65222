//! Getters of classes as rows: name, type and expression.

/// Defines getters of a class: `name: type = |it| expression of it;`, each with its documentation.
macro_rules! getters {
    ($class:ident $($(#[$about:meta])* $name:ident: $kind:ty = |$it:ident| $value:expr;)+) => {
        #[pymethods]
        impl $class {
            $(
                $(#[$about])*
                #[getter]
                fn $name(&self) -> $kind {
                    let $it = self;
                    $value
                }
            )+
        }
    };
}

pub(crate) use getters;
