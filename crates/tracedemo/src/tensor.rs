//! Inputs of operators as the profiler records them: dims, strides, types and concrete values.

use crate::event::{list, quoted};

/// Element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DType {
    BFloat16,
    Float,
    Long,
}

impl DType {
    /// Name in `Input type`.
    fn name(self) -> &'static str {
        match self {
            Self::BFloat16 => "c10::BFloat16",
            Self::Float => "float",
            Self::Long => "long int",
        }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> i64 {
        match self {
            Self::BFloat16 => 2,
            Self::Float => 4,
            Self::Long => 8,
        }
    }
}

/// A tensor's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) dims: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: DType,
}

impl Tensor {
    /// Contiguous tensor of bf16.
    pub(crate) fn new(dims: &[i64]) -> Self {
        Self::of(DType::BFloat16, dims)
    }

    /// Contiguous tensor.
    pub(crate) fn of(dtype: DType, dims: &[i64]) -> Self {
        let mut strides = vec![1; dims.len()];
        for index in (1..dims.len()).rev() {
            strides[index - 1] = strides[index] * dims[index];
        }
        Self { dims: dims.to_vec(), strides, dtype }
    }

    /// Number of elements.
    pub(crate) fn elements(&self) -> i64 {
        self.dims.iter().product()
    }

    /// Size in memory of a contiguous copy.
    pub(crate) fn bytes(&self) -> i64 {
        self.elements() * self.dtype.bytes()
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

/// One input of an operator.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A tensor.
    Tensor(Tensor),
    /// A list of tensors, of which the profiler keeps 30 or none.
    Tensors(Vec<Tensor>),
    /// A number or truth value.
    Scalar(String),
    /// A list of numbers.
    Scalars(String),
    /// An optional argument that is not given.
    None,
}

impl From<&Tensor> for Input {
    fn from(tensor: &Tensor) -> Self {
        Self::Tensor(tensor.clone())
    }
}

impl From<i64> for Input {
    fn from(value: i64) -> Self {
        Self::Scalar(value.to_string())
    }
}

impl From<bool> for Input {
    fn from(value: bool) -> Self {
        Self::Scalar(if value { "True" } else { "False" }.to_owned())
    }
}

impl From<&str> for Input {
    fn from(value: &str) -> Self {
        Self::Scalar(value.to_owned())
    }
}

impl<const N: usize> From<[i64; N]> for Input {
    fn from(values: [i64; N]) -> Self {
        Self::Scalars(list(values))
    }
}

impl From<&[i64]> for Input {
    fn from(values: &[i64]) -> Self {
        Self::Scalars(list(values))
    }
}

/// Tensors in a list above this number leave the list empty in the record.
const LONGEST_LIST: usize = 30;

impl Input {
    fn shape(&self, of: impl Fn(&Tensor) -> &[i64]) -> String {
        match self {
            Self::Tensor(tensor) => list(of(tensor)),
            Self::Tensors(tensors) if tensors.len() <= LONGEST_LIST => {
                list(tensors.iter().map(|tensor| list(of(tensor))))
            }
            _ => "[]".to_owned(),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::Tensor(tensor) => tensor.dtype.name(),
            Self::Tensors(_) => "TensorList",
            Self::Scalar(_) => "Scalar",
            Self::Scalars(_) => "ScalarList",
            Self::None => "",
        }
    }

    fn concrete(&self) -> &str {
        match self {
            Self::Scalar(text) | Self::Scalars(text) => text,
            _ => "",
        }
    }
}

/// The four arguments that describe an operator's inputs, in Kineto's order.
pub(crate) fn input_args(inputs: &[Input]) -> [(&'static str, String); 4] {
    [
        ("Concrete Inputs", list(inputs.iter().map(|input| quoted(input.concrete())))),
        ("Input type", list(inputs.iter().map(|input| quoted(input.type_name())))),
        ("Input Strides", list(inputs.iter().map(|input| input.shape(|tensor| &tensor.strides)))),
        ("Input Dims", list(inputs.iter().map(|input| input.shape(|tensor| &tensor.dims)))),
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
            Input::Tensors(vec![Tensor::of(DType::Float, &[3]), Tensor::of(DType::Float, &[])]),
            Input::from(&[1, -1][..]),
            Input::from(true),
            Input::None,
        ];
        let [concrete, types, strides, dims] = input_args(&inputs).map(|(_, text)| text);
        assert_eq!(concrete, r#"["", "", "[1, -1]", "True", ""]"#);
        assert_eq!(types, r#"["c10::BFloat16", "TensorList", "ScalarList", "Scalar", ""]"#);
        assert_eq!(strides, "[[1, 8], [[1], []], [], [], []]");
        assert_eq!(dims, "[[8, 4], [[3], []], [], [], []]");
    }
}
