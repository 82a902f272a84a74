//! Inputs of operators as the profiler records them: dims, strides, types and concrete values.

use crate::event::{list, quoted};

/// Element type: its name in `Input type`, bytes of an element, and number of its `c10::ScalarType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DType {
    name: &'static str,
    bytes: i64,
    pub(crate) number: i64,
}

impl DType {
    pub(crate) const BFLOAT16: Self = Self { name: "c10::BFloat16", bytes: 2, number: 15 };
    pub(crate) const FLOAT: Self = Self { name: "float", bytes: 4, number: 6 };
    pub(crate) const LONG: Self = Self { name: "long int", bytes: 8, number: 4 };
}

/// A tensor's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) dims: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: DType,
}

impl Tensor {
    pub(crate) fn new(dims: &[i64]) -> Self {
        Self::of(DType::BFLOAT16, dims)
    }

    pub(crate) fn of(dtype: DType, dims: &[i64]) -> Self {
        let mut strides = vec![1; dims.len()];
        for index in (1..dims.len()).rev() {
            strides[index - 1] = strides[index] * dims[index];
        }
        Self { dims: dims.to_vec(), strides, dtype }
    }

    pub(crate) fn elements(&self) -> i64 {
        self.dims.iter().product()
    }

    /// Size in memory of a contiguous copy.
    pub(crate) fn bytes(&self) -> i64 {
        self.elements() * self.dtype.bytes
    }

    /// The same memory with two dimensions swapped.
    pub(crate) fn transposed(&self, first: usize, second: usize) -> Self {
        let mut out = self.clone();
        out.dims.swap(first, second);
        out.strides.swap(first, second);
        out
    }

    /// A contiguous tensor of the same elements in another shape.
    pub(crate) fn viewed(&self, dims: &[i64]) -> Self {
        Self::of(self.dtype, dims)
    }
}

/// A parameter of the model.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
}

impl Param {
    /// Key of its gradient's memory.
    pub(crate) fn gradient_key(&self) -> String {
        format!("gradient of {}", self.name)
    }
}

/// One input of an operator, as text of each of [`input_args`].
#[derive(Clone, Debug)]
pub(crate) struct Input {
    concrete: String,
    type_name: &'static str,
    strides: String,
    dims: String,
}

impl Input {
    fn plain(type_name: &'static str, concrete: String) -> Self {
        Self { concrete, type_name, strides: "[]".to_owned(), dims: "[]".to_owned() }
    }

    /// A list of tensors, of which the profiler keeps 30 or none.
    pub(crate) fn tensors(tensors: &[Tensor]) -> Self {
        const LONGEST: usize = 30;
        let kept = if tensors.len() <= LONGEST { tensors } else { &[] };
        let strides = list(kept.iter().map(|tensor| list(&tensor.strides)));
        let dims = list(kept.iter().map(|tensor| list(&tensor.dims)));
        Self { strides, dims, ..Self::plain("TensorList", String::new()) }
    }
}

impl From<&Tensor> for Input {
    fn from(tensor: &Tensor) -> Self {
        let (strides, dims) = (list(&tensor.strides), list(&tensor.dims));
        Self { strides, dims, ..Self::plain(tensor.dtype.name, String::new()) }
    }
}

/// What inputs without tensors are made from: type, name of the type in the record, and concrete value.
macro_rules! inputs_from {
    ($($from:ty: $value:pat => $type_name:literal, $concrete:expr;)*) => {$(
        impl From<$from> for Input {
            fn from($value: $from) -> Self {
                Self::plain($type_name, $concrete)
            }
        }
    )*};
}

inputs_from! {
    // An optional argument that is not given.
    (): () => "", String::new();
    i64: value => "Scalar", value.to_string();
    bool: value => "Scalar", if value { "True" } else { "False" }.to_owned();
    &str: value => "Scalar", value.to_owned();
    &[i64]: values => "ScalarList", list(values);
}

impl<const N: usize> From<[i64; N]> for Input {
    fn from(values: [i64; N]) -> Self {
        Self::from(&values[..])
    }
}

/// The four arguments that describe an operator's inputs, in Kineto's order.
pub(crate) fn input_args(inputs: &[Input]) -> [(&'static str, String); 4] {
    [
        ("Concrete Inputs", list(inputs.iter().map(|input| quoted(&input.concrete)))),
        ("Input type", list(inputs.iter().map(|input| quoted(input.type_name)))),
        ("Input Strides", list(inputs.iter().map(|input| &input.strides))),
        ("Input Dims", list(inputs.iter().map(|input| &input.dims))),
    ]
}

#[cfg(test)]
mod tests {
    use super::{DType, Input, Tensor, input_args};

    #[test]
    fn inputs_read_as_the_profiler_writes_them() {
        let matrix = Tensor::new(&[4, 8]).transposed(0, 1);
        let inputs = [
            Input::from(&matrix),
            Input::tensors(&[&[3][..], &[]].map(|dims| Tensor::of(DType::FLOAT, dims))),
            Input::from([1, -1]),
            Input::from(true),
            Input::from(()),
        ];
        let [concrete, types, strides, dims] = input_args(&inputs).map(|(_, text)| text);
        assert_eq!(concrete, r#"["", "", "[1, -1]", "True", ""]"#);
        assert_eq!(types, r#"["c10::BFloat16", "TensorList", "ScalarList", "Scalar", ""]"#);
        assert_eq!(strides, "[[1, 8], [[1], []], [], [], []]");
        assert_eq!(dims, "[[8, 4], [[3], []], [], [], []]");
    }
}
