//! AdamW over all parameters at once, launched one by one or replayed as a CUDA graph.

use super::kernels::multi_tensor;
use crate::gpu::Kernel;
use crate::plan::{Builder, Op, op};
use crate::tensor::{DType, Input, Param, Tensor};

/// Parameters that one launch handles.
const CHUNK: usize = 24;

/// Operator, functor, number of tensor lists that the kernel reads or writes, and other arguments.
type Update = (&'static str, &'static str, u32, &'static [&'static str]);

const UPDATES: [Update; 8] = [
    ("aten::_foreach_mul_", "BinaryOpScalarFunctor", 1, &["0.99999000000000005"]),
    ("aten::_foreach_lerp_", "TernaryOpScalarFunctor", 2, &["0.10000000000000001"]),
    ("aten::_foreach_mul_", "BinaryOpScalarFunctor", 1, &["0.94999999999999996"]),
    ("aten::_foreach_addcmul_", "PointwiseOpScalarFunctor", 3, &["0.050000000000000003"]),
    ("aten::_foreach_sqrt", "UnaryOpFunctor", 2, &[]),
    ("aten::_foreach_div_", "BinaryOpScalarListFunctor", 1, &[]),
    ("aten::_foreach_add_", "BinaryOpScalarFunctor", 1, &["1e-08"]),
    ("aten::_foreach_addcdiv_", "PointwiseOpScalarListFunctor", 3, &[]),
];

/// `optimizer.zero_grad()`: frees the gradients.
pub(crate) fn zero_grad(params: &[Param], b: &mut Builder) {
    b.frame("torch/optim/optimizer.py(1010): zero_grad", |b| {
        b.annotation("Optimizer.zero_grad#AdamW.zero_grad", |b| {
            for param in params {
                b.leaf_frame("torch/_compile.py(28): inner", 210);
                b.leaf_frame("<built-in function getattr>", 110);
                b.free_key(&param.gradient_key(), param.tensor.bytes());
            }
        });
    });
}

/// `optimizer.step()`; `as_graph` replays it.
pub(crate) fn step(params: &[Param], b: &mut Builder, as_graph: bool) {
    b.frame("torch/optim/lr_scheduler.py(133): wrapper", |b| {
        b.frame("torch/optim/optimizer.py(485): wrapper", |b| {
            b.annotation("Optimizer.step#AdamW.step", |b| {
                if as_graph {
                    b.frame("torch/cuda/graphs.py(88): replay", |b| {
                        b.launch_graph(&kernels(params));
                    });
                } else {
                    b.frame("torch/optim/adamw.py(211): step", |b| {
                        b.frame("torch/optim/adamw.py(138): _init_group", |b| collect(params, b));
                        launch_all(params, b);
                    });
                }
            });
        });
    });
}

/// Looks up gradient and state of each parameter, in Python.
fn collect(params: &[Param], b: &mut Builder) {
    for _ in params {
        b.leaf_frame("torch/_tensor.py(1149): __hash__", 420);
        for _ in 0..3 {
            b.leaf_frame("<built-in method append of list object at 0x7f39d4f0c9c0>", 90);
        }
        b.leaf_frame("torch/utils/_foreach_utils.py(12): _get_foreach_kernels_supported_devices", 260);
        b.leaf_frame("<built-in method is_complex of Tensor object at 0x7f39d4f21b30>", 120);
    }
}

fn launch_all(params: &[Param], b: &mut Builder) {
    let steps = vec![Tensor::of(DType::FLOAT, &[]); params.len()];
    b.frame("torch/optim/adam.py(646): _multi_tensor_adam", |b| {
        b.leaf(op!("aten::_foreach_add_", Input::tensors(&steps), (), 1), 6_000);
        let launches = kernels(params);
        let tensors: Vec<_> = params.iter().map(|param| param.tensor.clone()).collect();
        for ((name, _, lists, scalars), launches) in
            UPDATES.iter().zip(launches.chunks(launches.len() / UPDATES.len()))
        {
            let lists = vec![Input::tensors(&tensors); *lists as usize].into_iter();
            let scalars = scalars.iter().map(|&scalar| Input::from(scalar));
            b.leaf_frame("torch/utils/_foreach_utils.py(35): _device_has_foreach_support", 500);
            b.op(Op::new(name, lists.chain(scalars)), |b| {
                b.wait(3_000 + 120 * params.len() as u32);
                for kernel in launches {
                    b.launch(kernel);
                    b.wait(1_900);
                }
            });
        }
    });
}

/// The kernels of all updates, in order.
fn kernels(params: &[Param]) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for (_, functor, lists, _) in UPDATES {
        for chunk in params.chunks(CHUNK) {
            let elements = chunk.iter().map(|param| param.tensor.elements()).sum();
            kernels.push(multi_tensor(functor, lists, elements));
        }
    }
    kernels
}
