//! The values of a column, which two columns can have in common.

use std::ops::Deref;
use std::sync::Arc;

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer, ToByteSlice};
use bytes::Bytes;

/// Values of one column, or of several until one of them changes its own.
#[derive(Debug)]
pub(super) struct Values<T> {
    /// Empty while they are shared.
    own: Vec<T>,
    shared: Option<Arc<Vec<T>>>,
}

impl<T: Copy> Values<T> {
    /// The values, for changing them.
    #[inline]
    pub(super) fn own(&mut self) -> &mut Vec<T> {
        if self.shared.is_some() {
            self.copy();
        }
        &mut self.own
    }

    #[cold]
    fn copy(&mut self) {
        self.own = self.to_vec();
        self.shared = None;
    }

    /// The same values in the same memory.
    pub(super) fn share(&mut self) -> Self {
        let shared = self.shared.get_or_insert_with(|| Arc::new(std::mem::take(&mut self.own)));
        Self { own: Vec::new(), shared: Some(Arc::clone(shared)) }
    }

    pub(super) fn shares_with(&self, other: &Self) -> bool {
        self.shared.as_ref().zip(other.shared.as_ref()).is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> Deref for Values<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.shared.as_deref().unwrap_or(&self.own)
    }
}

impl<T> From<Vec<T>> for Values<T> {
    fn from(own: Vec<T>) -> Self {
        Self { own, shared: None }
    }
}

impl<T: Copy> From<Values<T>> for Vec<T> {
    fn from(mut values: Values<T>) -> Self {
        std::mem::take(values.own())
    }
}

impl<T: ArrowNativeType> From<Values<T>> for ScalarBuffer<T> {
    fn from(values: Values<T>) -> Self {
        match values.shared {
            Some(values) => Buffer::from(Bytes::from_owner(Owner(values))).into(),
            None => values.own.into(),
        }
    }
}

/// What a buffer of Arrow keeps in memory.
struct Owner<T>(Arc<Vec<T>>);

impl<T: ArrowNativeType> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}

#[cfg(test)]
mod tests {
    use arrow_buffer::ScalarBuffer;

    use super::Values;

    #[test]
    fn shared_values_are_one_buffer_until_one_changes() {
        let mut first = Values::from(vec![1_i64, 2, 3]);
        let mut second = first.share();
        let mut third = second.share();
        third.own().push(4);
        assert!(first.shares_with(&second) && !second.shares_with(&third));
        assert_eq!((&*second, &*third), ([1, 2, 3].as_slice(), [1, 2, 3, 4].as_slice()));
        let [first, second] = [first, second].map(ScalarBuffer::from);
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert_eq!((&*first, &*ScalarBuffer::from(third)), ([1, 2, 3].as_slice(), [1, 2, 3, 4].as_slice()));
    }
}
