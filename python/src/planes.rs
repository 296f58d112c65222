//! Element layout in a buffer: planes, and strides in elements.

use pyo3::buffer::{Element, PyBuffer};

/// The planes that a buffer's shape and strides describe: the elements behind the second axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneLayout {
    pub(crate) counts: [usize; 2],
    pub(crate) steps: [usize; 2],
    pub(crate) size: usize,
}

impl PlaneLayout {
    /// Returns the layout of a buffer, if the planes are contiguous.
    pub(crate) fn of<T: Element>(buffer: &PyBuffer<T>) -> Option<Self> {
        let (shape, strides, item) = (buffer.shape(), buffer.strides(), size_of::<T>());
        if shape.len() < 2 {
            return None;
        }
        let mut size = 1_usize;
        for (&count, &stride) in shape.iter().zip(strides).skip(2).rev() {
            if count != 1 && usize::try_from(stride) != Ok(size.checked_mul(item)?) {
                return None;
            }
            size = size.checked_mul(count)?;
        }
        let step = |axis: usize| {
            let stride = if shape[axis] == 1 { 0 } else { usize::try_from(strides[axis]).ok()? };
            (stride % item == 0).then_some(stride / item)
        };
        Some(Self { counts: [shape[0], shape[1]], steps: [step(0)?, step(1)?], size })
    }

    /// Returns the layout of a buffer's rows, if the rows are contiguous and the dimensions before
    /// the last can be walked as two.
    pub(crate) fn of_rows<T: Element>(buffer: &PyBuffer<T>) -> Option<Self> {
        let (shape, strides) = (buffer.shape(), element_strides(buffer)?);
        let (&size, outer) = shape.split_last()?;
        if size != 1 && strides.last() != Some(&1) {
            return None;
        }
        let mut walk: Vec<(usize, usize)> = Vec::new();
        for (&count, &step) in outer.iter().zip(&strides).filter(|(count, _)| **count != 1) {
            match walk.last_mut() {
                Some((before, inner)) if *inner == step.checked_mul(count)? => {
                    *before = before.checked_mul(count)?;
                    *inner = step;
                }
                _ => walk.push((count, step)),
            }
        }
        let (counts, steps) = match walk[..] {
            [] => ([1, 1], [0, 0]),
            [(count, step)] => ([1, count], [0, step]),
            [(images, image), (count, step)] => ([images, count], [image, step]),
            _ => return None,
        };
        Some(Self { counts, steps, size })
    }
}

/// Returns the strides of a buffer in elements, if none is negative.
pub(crate) fn element_strides<T: Element>(buffer: &PyBuffer<T>) -> Option<Vec<usize>> {
    let size = size_of::<T>();
    let strides = buffer.strides().iter();
    strides.map(|&s| usize::try_from(s).ok().filter(|s| s % size == 0).map(|s| s / size)).collect()
}
